"""The SQL of the documentation is a program."""

import pyarrow as pa

from tests.support.stub_analyzer import StubAnalyzer
from tests.unit.test_docs import FENCE, ROOT
from tidegate.sql.compiler import program_of
from tidegate.sql.source import Text


def program_in(page):
    blocks = FENCE.findall((ROOT / page).read_text("utf-8"))
    text = "\n".join(code for language, code in blocks if language == "sql")
    return program_of(Text(text), analyzer=StubAnalyzer({"user": pa.string()}))


def test_the_sql_of_the_tour_is_its_first_program():
    [insert] = program_in("docs/tour.md").inserts
    assert {channel: sink.name for channel, sink in insert.sinks.items()} == {
        "main": "spend", "late": "late", "errors": "errors",
    }  # fmt: skip
    assert insert.plan.label() == "Emit[changelog]"


def test_the_page_on_sql_is_one_program():
    program = program_in("docs/sql.md")
    assert [insert.sinks["main"].name for insert in program.inserts] == [
        "spend", "averages", "sessions", "in_order", "peaks", "pairs",
    ]  # fmt: skip
