"""The page of rules: each has a test that exists, and pictures are what the kernels do today."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.pictures.__main__ import FOLDER
from scripts.pictures.stories import STORIES

ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "semantics.md"
TRANSCRIPTS = ROOT / "tests" / "transcripts"

PROOFS = re.compile(r"^Proved by: (.*)$", re.MULTILINE)
PROOF = re.compile(r"`([^`]+)`")
PICTURE = re.compile(r"!\[([^\]]*)\]\(pictures/([^)]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def proofs(text):
    """The tests that a page names."""
    return [proof for line in PROOFS.findall(text) for proof in PROOF.findall(line)]


@cache
def provable(file: Path) -> set[str]:
    """The names of a file that can prove something: its test functions, or its transcripts."""
    if not file.exists():
        return set()
    if file.parent == TRANSCRIPTS:
        module = import_module(f"tests.transcripts.{file.stem}")
        return {transcript.name for transcript in module.TRANSCRIPTS}
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return {name for name in functions if name.startswith("test_")}


def missing(text):
    """The tests that a page names and that do not exist."""
    split = (proof.partition("::") for proof in proofs(text))
    return [f"{file}::{name}" for file, _, name in split if name not in provable(ROOT / file)]


def sections(text):
    """The sections of a page that say something themselves, by heading."""
    parts = re.split(r"^##+ (.*)$", FENCE.sub("", text), flags=re.MULTILINE)
    return {
        heading: body for heading, body in zip(parts[1::2], parts[2::2], strict=True) if body.strip()
    }


def unproved(text):
    """Sections without a test, and rules behind the last one of their section."""
    found = []
    for heading, body in sections(text).items():
        *proved, last = PROOFS.split(body)[::2]
        if not proved or last.strip():
            found.append(heading)
    return found


def test_every_test_that_proves_a_rule_exists():
    assert missing(PAGE.read_text("utf-8")) == []


def test_every_section_ends_with_its_proof():
    # Sessions end with a program, which is a test itself.
    assert unproved(PAGE.read_text("utf-8")) == []


def test_proofs_are_written_in_one_way():
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("Proved")]
    form = r"Proved by: `tests/[^`]+::[^`]+`( · `tests/[^`]+::[^`]+`)*"
    assert [line for line in lines if not re.fullmatch(form, line)] == []
    assert len(lines) > 40


def test_what_is_wrong_with_a_page_is_found():
    page = (
        "## One\nA rule.\n\nProved by: `tests/unit/test_sessions.py::test_gone`"
        " · `tests/transcripts/windows.py::final waits for nobody` · `tests/gone.py::test_x`\n"
        "## Two\nA rule.\n## Three\n\n### Inner\n"
        "Proved by: `tests/transcripts/windows.py::final`\n\nA rule.\n"
    )
    assert missing(page) == [
        "tests/unit/test_sessions.py::test_gone",
        "tests/gone.py::test_x",
        "tests/transcripts/windows.py::final",
    ]
    assert unproved(page) == ["Two", "Inner"]


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
