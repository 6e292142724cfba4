"""The table of docs/from-spark.md: what it says of an operation, a test has seen."""

import re

from tests.spark.test_beside_spark import DIFFERENT, EQUAL
from tests.unit.test_docs import ROOT

_BEGIN, _END = "## Operation by operation", "## When not to use it"
_ROW = re.compile(r"^\| (?P<spark>.+?) \| (?P<ours>.+?) \| (?P<answers>.+?) \| (?P<proof>.+?) \|$", re.M)


def rows() -> list[re.Match[str]]:
    section = (
        (ROOT / "docs" / "from-spark.md").read_text("utf-8").partition(_BEGIN)[2].partition(_END)[0]
    )
    return [row for row in _ROW.finditer(section) if row["spark"] not in ("Spark", "---")]


def proofs_of(answers: str) -> set[str]:
    return {row["proof"].strip("`") for row in rows() if row["answers"].startswith(answers)}


def test_every_row_says_whether_answers_are_equal() -> None:
    assert len(rows()) > len(EQUAL | DIFFERENT)
    strange = [row[0] for row in rows() if not re.match("equal|differ:|none", row["answers"])]
    assert strange == []


def test_rows_with_equal_answers_are_those_with_a_test_of_it() -> None:
    assert proofs_of("equal") == EQUAL.keys()


def test_rows_with_other_answers_are_those_with_a_test_of_it() -> None:
    assert proofs_of("differ") == DIFFERENT.keys()


def test_rows_without_an_equivalent_have_no_test() -> None:
    assert proofs_of("none") == {"–"}
