"""The glossary: the tests that it links to exist in the files that it names."""

import re
from pathlib import Path

from tests.unit.test_semantics_page import provable

DOCS = Path(__file__).parents[2] / "docs"
TEST = re.compile(r"\[([^\]]+)\]\(\.\./(tests/[^)]+\.py)\)")


def missing(text):
    """The links of a page to tests that do not exist."""
    found = TEST.findall(text)
    return [f"{file}::{name}" for name, file in found if name not in provable(DOCS.parent / file)]


def test_every_test_that_shows_something_exists():
    text = (DOCS / "glossary.md").read_text("utf-8")
    assert missing(text) == []
    assert len(TEST.findall(text)) > 100


def test_every_row_of_the_tables_says_where_it_is_shown_or_that_it_is_not_built():
    text = (DOCS / "glossary.md").read_text("utf-8").partition("\n## Pipeline Event Time")[2]
    rows = [
        line for line in text.splitlines() if line.startswith("| ") and "in the document" not in line
    ]
    assert [row for row in rows if not TEST.search(row) and "not built" not in row] == []


def test_a_test_that_is_gone_is_found():
    assert missing(
        "[test_a_test_that_is_gone_is_found](../tests/unit/test_glossary.py)"
        " [test_gone](../tests/unit/test_glossary.py) [test_x](../tests/gone.py)"
    ) == ["tests/unit/test_glossary.py::test_gone", "tests/gone.py::test_x"]
