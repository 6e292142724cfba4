"""The documentation: links lead somewhere, public names are explained, programs print what they say.

Blocks of `python` and `bash` are run, and print the block of `text` that follows them.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import tidegate
from tests.support.time_limits import HANG
from tidegate.kernels.aggregate_registry import AGGREGATES

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


def programs(text: str) -> list[tuple[str, str, str]]:
    """The blocks of a page that are run: language, code, and the text block that follows, if any."""
    blocks = FENCE.findall(text)
    after = [*blocks[1:], ("", "")][: len(blocks)]
    return [
        (language, code, shown if kind == "text" else "")
        for (language, code), (kind, shown) in zip(blocks, after, strict=True)
        if language in ("python", "bash")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Top\n[a](page.md#top) [b](gone.md) [c](#nowhere) [d](https://example.org/x)\n")
    assert broken_links(page) == ["gone.md", "#nowhere"]


@pytest.mark.parametrize("name", [*tidegate.__all__, *AGGREGATES])
def test_public_names_are_explained(name):
    written = [page for page in PAGES if page.name != "reference.md"]  # that one lists all of them
    text = "\n".join(page.read_text("utf-8") for page in written)
    assert re.search(rf"\btg\.{name}\b", text), f"tg.{name} is in neither README.md nor docs/"


@pytest.fixture
def own_database(postgres: str) -> Iterator[str]:
    """A database for one page, whose tables no other test sees."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE page")
        yield make_conninfo(postgres, dbname="page")
        connection.execute("DROP DATABASE page")


def shell(code: str) -> str:
    """What a shell prints, that has this Python's programs at hand."""
    programs_here = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs_here, os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-euc", code], env=environment, capture_output=True, text=True, timeout=HANG
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def pattern(shown: str) -> str:
    """A regular expression of what a page shows: `…` stands for what differs from run to run."""
    return r"[^\n]*".join(map(re.escape, shown.strip().split("…")))


def test_an_ellipsis_stands_for_part_of_a_line():
    assert re.fullmatch(pattern("done after … s: 3 rows\n"), "done after 1.5 s: 3 rows")
    assert not re.fullmatch(pattern("done after … s: 3 rows\n"), "done after 1.5 s: 4 rows")
    assert not re.fullmatch(pattern("a …"), "a b\nc")


def test_a_shell_block_that_fails_is_found():
    assert shell("echo one | tr n N") == "oNe\n"
    with pytest.raises(AssertionError):
        shell("false\necho two")
    with pytest.raises(AssertionError):
        shell("tidegate walk")


@pytest.mark.spark
@pytest.mark.parametrize(
    "page", [page for page in PAGES if programs(page.read_text("utf-8"))], ids=lambda page: page.name
)
def test_programs_print_what_the_page_says(page, spark, tmp_path, monkeypatch, request):
    text = page.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    if "PG_DSN" in text:
        monkeypatch.setenv("PG_DSN", request.getfixturevalue("own_database"))
    # The blocks of a page are one program: later ones use what earlier ones defined.
    namespace = {"__name__": "page", "spark": spark}
    for language, code, shown in programs(text):
        if language == "bash":
            assert re.fullmatch(pattern(shown), shell(code).strip())
            continue
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), namespace)
        if shown:
            assert printed.getvalue().strip() == shown.strip()
    # Spark holds on to functions of `foreachBatch`, and they to all of this.
    namespace.clear()
