"""Window joins: two windowed streams, paired by the equalities of ON."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidegate.sql.relations import Relation
from tidegate.sql.source import Text
from tidegate.sql.windows import WindowTable


@dataclass(frozen=True)
class Read:
    """What FROM or JOIN gives: rows, in windows where it names them."""

    relation: Relation
    windows: WindowTable | None = None


def joined(text: Text, join: exp.Join) -> Relation:
    raise text.refuse(join.this, "joins of windows are not available yet")
