"""Window specifications: frozen values that say which rows belong together."""

from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from tidegate.plan.identity import Registered
from tidegate.plan.time import Micros, render


class Window(Registered):
    """What plans ask of every kind of window."""

    #: Has each row a window of its own, whose result goes beside the row's columns?
    by_row: ClassVar[bool] = False
    #: Does it never close?
    endless: ClassVar[bool] = False
    #: Can a late row make one of two that have been emitted?
    merges: ClassVar[bool] = False

    @property
    def length(self) -> Micros | None:
        """How long it is at most, if that is known."""
        return None

    @property
    def reach(self) -> Micros:
        """How long after its time a row's own result leaves."""
        return Micros(0)

    @property
    def gap_column(self) -> str | None:
        """The column with each row's own gap, if there is one."""
        return None

    @property
    def condition(self) -> str | None:
        """What rows must meet to have a result, in SQL."""
        return None


@dataclass(frozen=True)
class Hopping(Window):
    """Windows `[k·slide + offset, + size)`; a tumbling window is one whose slide is its size."""

    size: Micros
    slide: Micros
    offset: Micros = Micros(0)

    kind = "hopping"

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide

    @property
    def length(self) -> Micros:
        return self.size

    def last_start_before_ends(self, of: "Hopping") -> Micros:
        """How long before an end of other windows the last window that begins before it does, at least.

        Starts and ends lie on two grids; what they have in common is the distance of the closest pair.
        """
        common = gcd(self.slide, of.slide)
        return Micros((of.offset + of.size - self.offset) % common or common)

    def __str__(self) -> str:
        offset = f", offset={render(self.offset)}" if self.offset else ""
        if self.tumbling:
            return f"tumbling({render(self.size)}{offset})"
        return f"hopping({render(self.size)}, {render(self.slide)}{offset})"

    __repr__ = __str__


@dataclass(frozen=True)
class Session(Window):
    """Rows of a key that lie at most `gap` apart, touching included, transitively.

    `gap` is one duration for all rows, or the name of a column with each row's own: a row reaches
    from its event time to that plus its gap, and what touches belongs together. With `max_length`
    sessions are cut at the multiples of it since the epoch, so none is longer.
    """

    gap: Micros | str
    max_length: Micros | None = None

    kind = "session"
    merges = True

    @property
    def length(self) -> Micros | None:
        return self.max_length

    @property
    def gap_column(self) -> str | None:
        return self.gap if isinstance(self.gap, str) else None

    def __str__(self) -> str:
        gap = f"gap_column={self.gap!r}" if isinstance(self.gap, str) else render(self.gap)
        limit = f", max_length={render(self.max_length)}" if self.max_length else ""
        return f"session({gap}{limit})"

    __repr__ = __str__


@dataclass(frozen=True)
class Sliding(Window):
    """Around each row at `t` the rows of its key in the closed range `[t − lookback, t + lookahead]`.

    Without a lookahead a row's result leaves with the row, over what has arrived by then; with one
    it waits until the range is complete. `when` is a condition in SQL: rows that do not meet it are
    content of other rows' windows, but have none of their own.
    """

    lookback: Micros
    lookahead: Micros | None = None
    when: str | None = None

    kind = "sliding"
    by_row = True

    @property
    def reach(self) -> Micros:
        return self.lookahead or Micros(0)

    @property
    def condition(self) -> str | None:
        return self.when

    def __str__(self) -> str:
        ahead = "" if self.lookahead is None else f", {render(self.lookahead)}"
        when = "" if self.when is None else f", when={self.when!r}"
        return f"sliding({render(self.lookback)}{ahead}{when})"

    __repr__ = __str__


@dataclass(frozen=True)
class AllTime(Window):
    """One window that never closes: aggregates over it are running folds."""

    kind = "all_time"
    endless = True

    def __str__(self) -> str:
        return "all time"

    __repr__ = __str__
