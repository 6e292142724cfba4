"""The documentation: links lead somewhere, public names are explained, programs print what they say."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import tidegate

ROOT = Path(tidegate.__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page whose file, or heading, does not exist."""
    broken = []
    for target in LINK.findall(prose(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            broken.append(target)
    return broken


def programs(text: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the text block that follows it: what it prints."""
    blocks = FENCE.findall(text)
    after = [*blocks[1:], ("", "")][: len(blocks)]
    return [
        (code, shown if kind == "text" else "")
        for (language, code), (kind, shown) in zip(blocks, after, strict=True)
        if language == "python"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Top\n[a](page.md#top) [b](gone.md) [c](#nowhere) [d](https://example.org/x)\n")
    assert broken_links(page) == ["gone.md", "#nowhere"]


@pytest.mark.parametrize("name", tidegate.__all__)
def test_public_names_are_explained(name):
    written = [page for page in PAGES if page.name != "reference.md"]  # that one lists all of them
    text = "\n".join(page.read_text("utf-8") for page in written)
    assert re.search(rf"\btg\.{name}\b", text), f"tg.{name} is in neither README.md nor docs/"


@pytest.mark.spark
@pytest.mark.parametrize(
    "page", [page for page in PAGES if programs(page.read_text("utf-8"))], ids=lambda page: page.name
)
def test_programs_print_what_the_page_says(page, spark):
    # The blocks of a page are one program: later ones use what earlier ones defined.
    namespace = {"__name__": "page", "spark": spark}
    for code, shown in programs(page.read_text("utf-8")):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), namespace)
        if shown:
            assert printed.getvalue().strip() == shown.strip()
