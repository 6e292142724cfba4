"""Rows that wait in a bucket, in pages by the time until which they do."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tidegate.operators.state import FIRST_POSITION, LAST_POSITION, BucketState


@dataclass(frozen=True)
class RowTable:
    """A table of rows, each with a time in the column `position`: pages are found and dropped by it."""

    name: str
    position: str
    #: How many positions a page covers.
    width: int = LAST_POSITION
    #: What has more rows than this is not merged any more.
    most: int = LAST_POSITION

    def keep(self, state: BucketState, rows: pl.DataFrame, oldest: int) -> None:
        """Store rows; where pages are put together, those before `oldest` are left out."""
        current = pl.col(self.position) >= oldest
        state.append(self.name, rows, self.position, self.width)
        state.compact(
            self.name,
            lambda pages: pl.concat(pages).filter(current),
            self.position,
            self.width,
            self.most,
        )

    def pages(
        self, state: BucketState, low: int = FIRST_POSITION, high: int = LAST_POSITION
    ) -> list[pl.DataFrame]:
        """Pages that have any rows between these times, both included, in the order they came."""
        return state.load(self.name, low, high)

    def between(self, state: BucketState, low: int, high: int) -> pl.DataFrame | None:
        """The rows between these times, both included, in the order they came."""
        inside = pl.col(self.position).is_between(low, high)
        found = [part for page in self.pages(state, low, high) if len(part := page.filter(inside))]
        return pl.concat(found) if found else None

    def drop_below(self, state: BucketState, oldest: int) -> int:
        """Drop what lies wholly before a time; how many rows are left from it on."""
        state.drop_below(self.name, oldest)
        pages = state.pages(self.name)
        mixed = state.read([page for page in pages if page.low < oldest])
        left = sum(int((page[self.position] >= oldest).sum()) for page in mixed)
        return left + sum(page.rows for page in pages if page.low >= oldest)

    def next_after(self, state: BucketState, time: int) -> int | None:
        """The earliest time of a row after this one."""
        later = (page[self.position].to_numpy() for page in self.pages(state, low=time + 1))
        found = (int(times[times > time].min()) for times in later if (times > time).any())
        return min(found, default=None)

    def last_of_a_page(self, state: BucketState) -> int | None:
        """The last time in the page that ends first."""
        return min((page.high for page in state.pages(self.name)), default=None)
