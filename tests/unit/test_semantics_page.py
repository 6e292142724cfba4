"""The pages of rules and proofs: each rule has a test that exists; pictures are what the kernels do."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from scripts.pictures.__main__ import FOLDER
from scripts.pictures.stories import STORIES
from tests.transcripts import TRANSCRIPTS

ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "semantics.md"
PROOFS = ROOT / "docs" / "proofs.md"

ROW = re.compile(r"^\| (?P<rules>.+) \| (?P<proofs>(?:transcript )?`.+`) \|$")
PROOF = re.compile(r"(transcript )?`([^`]+)`")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]+\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(pictures/([^)]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(?:- |\d+\. )", re.MULTILINE)


class Proof(NamedTuple):
    """A test by its file and name, or a transcript, which is known by its name wherever it stands."""

    file: str
    name: str

    @classmethod
    def of(cls, text: str) -> "Proof":
        file, _, name = text.partition("::")
        return cls(file if name.startswith("test_") else "", name)

    def exists(self) -> bool:
        return self.name in (provable(ROOT / self.file) if self.file else transcripts())


@cache
def provable(file: Path) -> set[str]:
    """The names of a file that can prove something: its test functions, or its transcripts."""
    if not file.exists():
        return set()
    if file.parent == ROOT / "tests" / "transcripts":
        module = import_module(f"tests.transcripts.{file.stem}")
        return {transcript.name for transcript in module.TRANSCRIPTS}
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return {name for name in functions if name.startswith("test_")}


@cache
def transcripts() -> set[str]:
    """The names of all transcripts."""
    return {transcript.name for transcript in TRANSCRIPTS}


def sections(text: str) -> dict[str, str]:
    """The sections of a page that say something themselves, by heading."""
    parts = re.split(r"^##+ (.*)$", FENCE.sub("", text), flags=re.MULTILINE)
    return {
        heading: body for heading, body in zip(parts[1::2], parts[2::2], strict=True) if body.strip()
    }


def rules(body: str) -> Iterator[str]:
    """The paragraphs and list items of a section, without those that only introduce what follows."""
    for block in re.split(r"\n\s*\n", body):
        if block.strip() and not block.lstrip().startswith(("|", "![")):
            texts = (plain(item) for item in ITEM.split(block))
            yield from (text for text in texts if text and not text.endswith(":"))


def plain(text: str) -> str:
    """A text on one line, with the words of its links alone."""
    return " ".join(LINK.sub(r"\1", text).split())


def rows(body: str) -> list[tuple[list[str], list[Proof]]]:
    """The lines of a section of proofs: the rules that each quotes, and what proves them."""
    found = [ROW.match(line) for line in body.splitlines()]
    return [(line["rules"].split("<br>"), list(_proofs(line["proofs"]))) for line in found if line]


def _proofs(cell: str) -> Iterator[Proof]:
    for is_transcript, text in PROOF.findall(cell):
        yield Proof("", text) if is_transcript else Proof.of(text)


def proofs(text: str) -> list[Proof]:
    """All that a page of proofs names."""
    lines = [line for body in sections(text).values() for line in rows(body)]
    return [proof for _, named in lines for proof in named]


def problems(page: str, proved: str) -> list[str]:
    """What is wrong with a page of rules and its page of proofs."""
    said, shown = sections(page), {name: rows(body) for name, body in sections(proved).items()}
    found = [f"other sections: {name}" for name in said.keys() ^ shown.keys()]
    found += [f"no such proof: {proof}" for proof in proofs(proved) if not proof.exists()]
    for name in said.keys() & shown.keys():
        quotes, text = [quote for quoted, _ in shown[name] for quote in quoted], plain(said[name])
        found += [f"no such rule in {name}: {quote}" for quote in quotes if quote not in text]
        found += [
            f"no proof in {name}: {rule}"
            for rule in rules(said[name])
            if not any(quote in rule for quote in quotes)
        ]
    return sorted(found)


def test_every_rule_has_a_proof_and_every_proof_exists():
    assert problems(PAGE.read_text("utf-8"), PROOFS.read_text("utf-8")) == []


def test_both_pages_have_the_same_sections_in_one_order():
    said, shown = (list(sections(page.read_text("utf-8"))) for page in (PAGE, PROOFS))
    assert said == shown


def test_proofs_are_written_in_one_way():
    lines = [line for line in PROOFS.read_text("utf-8").splitlines() if line.startswith("| ")]
    written = [line for line in lines if line != "| rule | proved by |"]
    one = r"(transcript `[^`]+`|`tests/[^`]+\.py::test_[^`]+`)"
    form = rf"\| .+ \| {one}( · {one})* \|"
    assert [line for line in written if not re.fullmatch(form, line)] == []
    assert len(written) > 60


def test_what_is_wrong_with_the_pages_is_found():
    page = (
        "# Top\n\n## One\n\nA rule. More of it.\n\n- A [second](x.md) one.\n- It says:\n\n"
        "| a | table |\n\n## Two\n\nA rule.\n\n### Three\n\n![a picture](x.svg)\n"
    )
    proved = (
        "## One\n\n| rule | proved by |\n|---|---|\n"
        "| A rule. | transcript `final waits for nobody` · transcript `final` |\n"
        "| Gone. | `tests/unit/test_sessions.py::test_gone` · `tests/gone.py::test_x` |\n"
        "\n## Three\n\n| rule | proved by |\n|---|---|\n"
        "| a picture | transcript `final waits for nobody` |\n"
    )
    assert problems(page, proved) == [
        "no proof in One: A second one.",
        "no such proof: Proof(file='', name='final')",
        "no such proof: Proof(file='tests/gone.py', name='test_x')",
        "no such proof: Proof(file='tests/unit/test_sessions.py', name='test_gone')",
        "no such rule in One: Gone.",
        "other sections: Two",
    ]


def test_a_transcript_is_the_same_wherever_it_stands():
    moved = Proof.of("tests/elsewhere/joins.py::two equal right rows give two pairs")
    assert moved == Proof.of("tests/join_transcripts.py::two equal right rows give two pairs")
    assert moved.exists()
    assert Proof.of("tests/unit/test_transcripts.py::test_x").file == "tests/unit/test_transcripts.py"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_picture_shows_what_the_kernels_do(story):
    assert (FOLDER / f"{story.name}.svg").read_text("utf-8") == story.svg(), "run `make pictures`"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_picture_can_be_read_by_everybody(story):
    svg = ElementTree.parse(FOLDER / f"{story.name}.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert svg.find(f"{space}title").text == story.title
    assert svg.find(f"{space}rect").get("class") == "paper"


def test_every_picture_is_on_the_page_with_a_text_beside_it():
    shown = {name: alt for alt, name in PICTURE.findall(PAGE.read_text("utf-8"))}
    assert sorted(shown) == sorted(file.name for file in FOLDER.iterdir())
    assert sorted(shown) == sorted(f"{story.name}.svg" for story in STORIES)
    assert all(shown.values())
