"""The text of a program, and errors that point into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidegate.errors import PlanError, SqlError
from tidegate.sql.spans import Span
from tidegate.sql.tokens import Token

#: Where in the text something stands.
Place = Span | Token | int


@dataclass(frozen=True)
class Text:
    """The text as it was given."""

    sql: str

    def refuse(self, place: Place, problem: str) -> SqlError:
        """The error to raise: what is wrong at a place of the text."""
        start = min(place if isinstance(place, int) else place.start, len(self.sql))
        before = self.sql[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
        return SqlError(problem, self.sql, line, column)

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """What a plan refuses in here is refused at this place."""
        try:
            yield
        except SqlError:
            raise
        except PlanError as error:
            raise self.refuse(place, error.written_in("sql")) from error
