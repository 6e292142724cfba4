"""When results are emitted and what becomes of late rows: values, not flags."""

from dataclasses import dataclass
from typing import ClassVar

from tidegate.plan.identity import Registered
from tidegate.plan.time import Micros, render


@dataclass(frozen=True)
class OnWatermark(Registered):
    """One row when the watermark passes the window's end, and a corrected one if late rows change it."""

    kind = "on_watermark"

    def __str__(self) -> str:
        return "on_watermark"

    __repr__ = __str__


@dataclass(frozen=True)
class OnWindowClose(Registered):
    """Exactly one row, once nothing can change it any more."""

    final: bool = False

    kind = "on_window_close"

    def __str__(self) -> str:
        return "final" if self.final else "on_window_close"

    __repr__ = __str__


@dataclass(frozen=True)
class Retracting(Registered):
    """Each batch's net change, as retractions and insertions.

    `interval` bounds how often one window speaks up: zero is every batch that changed it.
    """

    first: str = "+I"
    before: str = "-U"
    after: str = "+U"
    interval: Micros = Micros(0)

    kind = "retracting"

    def __str__(self) -> str:
        if self.interval:
            return f"periodic({render(self.interval)})"
        return "on_update" if self.before == "-U" else "changelog"

    __repr__ = __str__


Emission = OnWatermark | OnWindowClose | Retracting


@dataclass(frozen=True)
class Drop(Registered):
    """Late rows are counted and gone."""

    kind = "drop"
    #: Are late rows reassigned to another time?
    moves: ClassVar[bool] = False
    #: The side output of late rows, if they have one.
    channel: ClassVar[None] = None

    def __str__(self) -> str:
        return "drop"

    __repr__ = __str__


@dataclass(frozen=True)
class Reassign(Registered):
    """Late rows move to the watermark if they are at most this late."""

    max_lateness: Micros

    kind = "reassign"
    moves: ClassVar[bool] = True
    channel: ClassVar[None] = None

    def __str__(self) -> str:
        return f"reassign({render(self.max_lateness)})"

    __repr__ = __str__


@dataclass(frozen=True)
class SideOutput(Registered):
    """Late rows leave, unchanged, through a channel of their own."""

    channel: str

    kind = "side_output"
    moves: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"side_output({self.channel!r})"

    __repr__ = __str__


LatePolicy = Drop | Reassign | SideOutput
