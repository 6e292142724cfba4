"""The text of a program, and errors that point into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from tidegate.errors import PlanError, SqlError

#: How SQL writes what messages of plans write as the API does.
_WRITTEN = {
    "tg.emit.changelog()": "EMIT CHANGES",
    "tg.emit.on_window_close()": "EMIT ON WINDOW CLOSE",
    "leave emit() out": "leave EMIT out",
    "tg.quantile('column', 0.5)": "percentile(column, 0.5)",
    "allowed_lateness=": "ALLOW LATENESS ",
    "time_type=": "'eventtime.type' = ",
    "events() adds": "the stream adds",
    "agg() names": "the query selects",
}


@dataclass(frozen=True)
class Text:
    """The text as it was given."""

    sql: str

    def refuse(self, place: exp.Expr | int, problem: str) -> SqlError:
        """The error to raise: what is wrong at a part of the tree, or at an offset."""
        start = min(place if isinstance(place, int) else start_of(place), len(self.sql))
        before = self.sql[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
        return SqlError(problem, self.sql, line, column)

    @contextmanager
    def at(self, place: exp.Expr) -> Iterator[None]:
        """What a plan refuses in here is refused at this place."""
        try:
            yield
        except SqlError:
            raise
        except PlanError as error:
            raise self.refuse(place, _in_sql(str(error))) from error


def start_of(tree: exp.Expr) -> int:
    """Where the tree begins in the text: its leftmost part that knows its place."""
    places = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
    return min(places, default=0)


def refuse_others(text: Text, node: exp.Expr, allowed: set[str], problem: str) -> None:
    """Refuse parts of the tree that we would not read: nothing is ignored."""
    for name, part in node.args.items():
        if part and name not in allowed:
            found = part[0] if isinstance(part, list) else part
            shown = name.rstrip("_").replace("_", " ").upper()
            place = found if isinstance(found, exp.Expr) and _has_place(found) else node
            raise text.refuse(place, f"{shown}: {problem}")


def _has_place(tree: exp.Expr) -> bool:
    return any("start" in node.meta for node in tree.walk())


def _in_sql(message: str) -> str:
    for api, sql in _WRITTEN.items():
        message = message.replace(api, sql)
    return message
