"""The SQL of the documentation is a program."""

from tests.unit.test_docs import FENCE, ROOT
from tidegate import sql


def test_the_page_on_sql_is_one_program():
    blocks = FENCE.findall((ROOT / "docs" / "sql.md").read_text("utf-8"))
    program = sql.compile("\n".join(code for language, code in blocks if language == "sql"))
    assert [insert.sinks["main"].name for insert in program.inserts] == [
        "spend", "averages", "sessions", "in_order", "peaks", "pairs",
    ]  # fmt: skip
