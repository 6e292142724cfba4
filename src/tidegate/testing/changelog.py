"""A changelog applied to a table, each change checked: what a careful reader of the stream would do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tidegate.testing.results import frozen, same
from tidegate.testing.table import Row, text

WINDOW = ("window_start", "window_end")


class IllegalChange(AssertionError):
    """A row of a changelog that cannot be applied."""


class Changelog:
    """The table that a changelog produces: at most one row for each key and window.

    Running folds have one row for each key, since they have no window.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._live: dict[Hashable, Row] = {}

    @property
    def rows(self) -> list[Row]:
        """The current table."""
        return list(self._live.values())

    def apply(self, batch: Iterable[Row]) -> list[Row]:
        """Apply the changes of one batch; returns the table after it."""
        changes = list(batch)
        inserted: set[Hashable] = set()
        for change in changes:
            key = self._of(change, self._keys)
            if change["op"] in ("-U", "-D"):
                if key in inserted:
                    raise IllegalChange(f"after an insertion for its key:\n{text([change])}")
                self._take_back(change)
            elif change["op"] in ("+I", "+U"):
                self._insert(change)
                inserted.add(key)
            else:
                raise IllegalChange(f"no such change:\n{text([change])}")
        self._check_updates(changes)
        return self.rows

    def _take_back(self, change: Row) -> None:
        row = _plain(change)
        live = self._live.pop(self._identity(change), None)
        if live is None:
            raise IllegalChange(f"takes back a row that is not there:\n{text([change])}")
        if any(not same(live[name], row[name]) for name in row):
            raise IllegalChange(f"takes back\n{text([row])}\nbut what is out is\n{text([live])}")

    def _insert(self, change: Row) -> None:
        identity = self._identity(change)
        if identity in self._live:
            raise IllegalChange(f"a second live row for one window:\n{text([change])}")
        self._live[identity] = _plain(change)

    def _check_updates(self, changes: Sequence[Row]) -> None:
        """Updates come in pairs; a session that grew takes the place of the old row."""
        before: dict[Hashable, list[Row]] = {}
        for change in changes:
            if change["op"] == "-U":
                before.setdefault(self._of(change, self._keys), []).append(change)
        missing = sum(map(len, before.values()))
        for change in changes:
            if change["op"] == "+U":
                old = before.get(self._of(change, self._keys), [])
                if not any(_lies_within(row, change) for row in old):
                    raise IllegalChange(f"updates nothing that this batch took back:\n{text([change])}")
                missing -= 1
        if missing:
            raise IllegalChange(f"{missing} rows were taken back for an update that never came")

    def _identity(self, row: Row) -> Hashable:
        return self._of(row, (*self._keys, *(name for name in WINDOW if name in row)))

    def _of(self, row: Row, columns: Sequence[str]) -> Hashable:
        return tuple(frozen(row[name]) for name in columns)


def _plain(change: Row) -> Row:
    return {name: value for name, value in change.items() if name != "op"}


def _equal(one: Row, other: Row) -> bool:
    return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)


def _lies_within(old: Row, new: Row) -> bool:
    if not all(name in new for name in WINDOW):
        return True
    return old["window_start"] >= new["window_start"] and old["window_end"] <= new["window_end"]


def consolidate(changes: Iterable[Row]) -> list[Row]:
    """The rows that remain after a changelog: each `-U` and `-D` retracts an equal row.

    >>> put, back = {"user": "ann", "n": 1, "op": "+I"}, {"user": "ann", "n": 1, "op": "-U"}
    >>> consolidate([put, back, {"user": "ann", "n": 2, "op": "+U"}])
    [{'user': 'ann', 'n': 2}]
    """
    out: list[Row] = []
    for change in changes:
        row = _plain(change)
        if change["op"] in ("+I", "+U"):
            out.append(row)
            continue
        place = next((n for n, other in enumerate(out) if _equal(row, other)), None)
        if place is None:
            raise IllegalChange(f"takes back a row that is not there:\n{text([change])}")
        del out[place]
    return out


def replay(batches: Iterable[Iterable[Row]], keys: Sequence[str]) -> list[list[Row]]:
    """The table at the end of each batch."""
    changelog = Changelog(keys)
    return [changelog.apply(batch) for batch in batches]
