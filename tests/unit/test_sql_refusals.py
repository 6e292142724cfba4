"""What is not a program is refused, with its place and with what would work."""

import pytest

from tests.golden.sql import program, refused
from tidegate import sql
from tidegate.errors import PlanError, SqlError


@pytest.mark.parametrize(("name", "message"), refused(), ids=[name for name, _ in refused()])
def test_refused_programs(name, message):
    with pytest.raises(SqlError) as found:
        sql.compile(program(name))
    assert message in str(found.value)


def test_an_error_shows_its_line_and_points_at_it():
    with pytest.raises(SqlError) as found:
        sql.compile("CREATE SINK a WITH (connector = 'console');\nSELECT *\nFROM  nowhere\nWHERE x")
    error = found.value
    assert str(error).splitlines() == [
        "line 3, column 7: no stream or view 'nowhere'; available: nothing",
        "  FROM  nowhere",
        "        ^",
    ]
    assert (error.line, error.column) == (3, 7)
    assert isinstance(error, PlanError)
