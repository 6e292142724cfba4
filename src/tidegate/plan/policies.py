"""When results are emitted and what becomes of late rows: values, not flags."""

from dataclasses import dataclass

from tidegate.plan.time import Micros, render


@dataclass(frozen=True)
class OnWatermark:
    """One row when the watermark passes the window's end, and a corrected one if late rows change it."""

    def __str__(self) -> str:
        return "on_watermark"

    __repr__ = __str__


@dataclass(frozen=True)
class OnWindowClose:
    """Exactly one row, once nothing can change it any more."""

    final: bool = False

    def __str__(self) -> str:
        return "final" if self.final else "on_window_close"

    __repr__ = __str__


@dataclass(frozen=True)
class Retracting:
    """Each batch's net change, as rows that take back and rows that put out.

    `interval` bounds how often one window speaks up: zero is every batch that changed it.
    """

    first: str = "+I"
    before: str = "-U"
    after: str = "+U"
    interval: Micros = Micros(0)

    def __str__(self) -> str:
        if self.interval:
            return f"periodic({render(self.interval)})"
        return "on_update" if self.before == "-U" else "changelog"

    __repr__ = __str__


Emission = OnWatermark | OnWindowClose | Retracting


@dataclass(frozen=True)
class Drop:
    """Late rows are counted and gone."""

    def __str__(self) -> str:
        return "drop"

    __repr__ = __str__


@dataclass(frozen=True)
class Reassign:
    """Late rows move to the watermark if they are at most this late."""

    max_lateness: Micros

    def __str__(self) -> str:
        return f"reassign({render(self.max_lateness)})"

    __repr__ = __str__


@dataclass(frozen=True)
class SideOutput:
    """Late rows leave, unchanged, through a channel of their own."""

    channel: str

    def __str__(self) -> str:
        return f"side_output({self.channel!r})"

    __repr__ = __str__


LatePolicy = Drop | Reassign | SideOutput
