"""A changelog applied to a table, each change checked: what a careful reader of the stream would do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tidegate.testing.results import frozen, same
from tidegate.testing.table import Row, text

WINDOW = ("window_start", "window_end")


class IllegalChange(AssertionError):
    """A row of a changelog that nobody could apply."""


class Changelog:
    """The table that a changelog stands for: at most one row for each key and window."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._live: dict[Hashable, Row] = {}

    @property
    def rows(self) -> list[Row]:
        """The table as it stands."""
        return list(self._live.values())

    def apply(self, batch: Iterable[Row]) -> list[Row]:
        """Apply one batch's changes; the table at its end comes back."""
        taken_back: set[Hashable] = set()
        inserted: set[Hashable] = set()
        for change in batch:
            row = {name: value for name, value in change.items() if name != "op"}
            key, identity = self._of(row, self._keys), self._of(row, (*self._keys, *WINDOW))
            if change["op"] in ("-U", "-D"):
                if key in inserted:
                    raise IllegalChange(f"after an insertion for its key:\n{text([change])}")
                self._take_back(identity, row, change)
                if change["op"] == "-U":
                    taken_back.add(identity)
            elif change["op"] in ("+I", "+U"):
                if change["op"] == "+U" and identity not in taken_back:
                    raise IllegalChange(f"updates nothing that this batch took back:\n{text([change])}")
                taken_back.discard(identity)
                self._insert(identity, row, change)
                inserted.add(key)
            else:
                raise IllegalChange(f"no such change:\n{text([change])}")
        if taken_back:
            raise IllegalChange(f"{len(taken_back)} rows were taken back for an update that never came")
        return self.rows

    def _take_back(self, identity: Hashable, row: Row, change: Row) -> None:
        live = self._live.pop(identity, None)
        if live is None:
            raise IllegalChange(f"takes back a row that is not there:\n{text([change])}")
        if any(not same(live[name], row[name]) for name in row):
            raise IllegalChange(f"takes back\n{text([row])}\nbut what is out is\n{text([live])}")

    def _insert(self, identity: Hashable, row: Row, change: Row) -> None:
        if identity in self._live:
            raise IllegalChange(f"a second live row for one window:\n{text([change])}")
        self._live[identity] = row

    def _of(self, row: Row, columns: Sequence[str]) -> Hashable:
        return tuple(frozen(row[name]) for name in columns)


def replay(batches: Iterable[Iterable[Row]], keys: Sequence[str]) -> list[list[Row]]:
    """The table at the end of each batch."""
    changelog = Changelog(keys)
    return [changelog.apply(batch) for batch in batches]
