"""Stories: what the kernels did in each batch, put on a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from scripts.pictures.play import Beat, as_written
from scripts.pictures.timeline import Band, Bar, Lane, Mark, Pair, draw, spread
from tidegate.kernels import aggregates as a
from tidegate.kernels.late import THE_END
from tidegate.plan.nodes import AnyOperator, Join
from tidegate.plan.policies import Retracting
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate
from tidegate.plan.windows import AllTime, Sliding
from tidegate.testing import KernelHost, Transcript, at
from tidegate.testing.table import Row, micros_of

#: Counters that a picture tells where they are not zero.
_TOLD = (
    "errors",
    "unassigned",
    "late_rows",
    "late_dropped",
    "late_reassigned",
    "duplicates_filtered",
)

#: A story told by hand: what happens, one after the other.
Told = Callable[[KernelHost], Iterator[Beat]]
Chosen = Callable[[Row], bool]


@dataclass(frozen=True)
class Story:
    """A picture: its file, its title, and what happens in it."""

    name: str
    title: str
    transcript: Transcript
    told: Told | None = None
    #: The first operator of a chain: its results are shown as well.
    first: AnyOperator | None = None
    #: The column on the axis, where that is not the event time.
    time: str | None = None
    axis: str = "event time, s"
    #: One lane for each source instead of one for each key.
    by_source: bool = False

    def svg(self) -> str:
        """The picture, from a run of the plan."""
        host = KernelHost(self.plan)
        beats = list(self.told(host) if self.told else as_written(self.transcript, host))
        bands = [self._band(beat, first) for beat, first in self._with_first(beats)]
        return draw(self.title, bands, self.axis)

    @property
    def plan(self) -> AnyOperator:
        return self.transcript.plan

    def _with_first(self, beats: Sequence[Beat]) -> Iterator[tuple[Beat, list[Bar]]]:
        """Each batch with what the first operator of a chain put out in it."""
        first = None if self.first is None else KernelHost(self.first)
        for beat in beats:
            results = [] if first is None else first.batch(*beat.rows).main
            yield beat, _in_order(_window(row, self.first) for row in results)

    def _band(self, beat: Beat, first: list[Bar]) -> Band:
        lanes = list(self._lanes(beat))
        if self.first is not None:
            lanes.insert(1, Lane("1st", [], [*first]))
        counts = beat.result.counts
        notes = " · ".join(f"{name} {counts[name]}" for name in _TOLD if counts[name])
        return Band(beat.label, self._watermarks(beat), [lane for lane in lanes if lane.filled], notes)

    def _watermarks(self, beat: Beat) -> list[float] | None:
        """That of the sources, and in a chain that of the second operator."""
        if self.time is not None or beat.result.watermark_micros == THE_END:
            return None
        if beat.result.watermark_micros is None:
            return []
        watermark = _seconds(beat.result.watermark_micros)
        feed = self.plan.inputs[0].upstream
        delay = self.plan.watermark_delay(self.plan.inputs[0]) / 1_000_000
        behind = [] if feed.operator is None else [watermark - delay]
        return [watermark, *behind]

    # -- lanes --------------------------------------------------------------------------------

    def _lanes(self, beat: Beat) -> Iterator[Lane]:
        plan = self.plan
        if isinstance(plan, Join):
            yield from _sides(plan, beat)
        elif not isinstance(plan, WindowedAggregate):
            yield from self._passage(beat)
        elif self.by_source or self.first is not None:
            for number, rows in enumerate(beat.rows, 1):
                label = f"source {number}" if self.by_source else "rows"
                yield Lane(label, self._marks(rows, beat.late))
            yield Lane("windows" if self.first is None else "2nd", [], _windows(plan, beat))
        else:
            yield from self._keys(plan, beat)

    def _keys(self, plan: WindowedAggregate, beat: Beat) -> Iterator[Lane]:
        [rows] = beat.rows
        for key in sorted({self._key(row) for row in (*rows, *beat.result.main, *beat.open)}):

            def own(row: Row, key: str = key) -> bool:
                return self._key(row) == key

            yield Lane(key, self._marks(filter(own, rows), beat.late), _windows(plan, beat, own))

    def _passage(self, beat: Beat) -> Iterator[Lane]:
        """An operator that lets rows pass: who came, and who left in which way."""
        [rows] = beat.rows
        for key in sorted({self._key(row) for row in rows}):
            own = (row for row in rows if self._key(row) == key)
            yield Lane(key or "rows", self._marks(own, beat.late))
        for channel, left in beat.result.channels.items():
            for reason in dict.fromkeys(row.get("reason") for row in left):
                own = (row for row in left if row.get("reason") == reason)
                kind = {"main": "out", "rejected": "rejected"}.get(channel, "late")
                label = "emitted" if channel == "main" else reason or channel
                yield Lane(label, spread(Mark(self._at(row), kind) for row in own))

    def _key(self, row: Row) -> str:
        return ", ".join(str(row.get(name)) for name in self.plan.keyed.keys)

    def _marks(self, rows: Iterable[Row], late: Sequence[Row]) -> list[Mark]:
        timed = [row for row in rows if row.get(self._time) is not None]
        return spread(Mark(self._at(row), "late" if _among(row, late) else "row") for row in timed)

    def _at(self, row: Row) -> float:
        return _second_of(row, self._time)

    @property
    def _time(self) -> str:
        return self.time or self.plan.sources[0].time


def _sides(plan: Join, beat: Beat) -> Iterator[Lane]:
    """The rows of both sides with their windows, and below them pairs."""
    for label, rows, side in zip(("left", "right"), beat.rows, plan.sides, strict=True):
        kind, time = ("left" if label == "left" else "right"), side.input.input.time
        marks = [Mark(_second_of(row, time), "late" if _among(row, beat.late) else kind) for row in rows]
        in_time = [row for row in rows if not _among(row, beat.late)]
        yield Lane(label, spread(marks), list(_windows_of(side, in_time)))
    pairs = [Pair(*(_second_of(row, time) for time in plan.order)) for row in beat.result.main]
    yield Lane("pairs", [], sorted(pairs, key=str))


def _windows_of(side: WindowBy, rows: Sequence[Row]) -> Iterator[Bar]:
    """The windows that these rows make by themselves."""
    plan = WindowedAggregate(Aggregation(side, (("n", a.Count(None)),)), Retracting())
    made = KernelHost(plan).batch(rows).main
    for start, end in sorted({(row["window_start"], row["window_end"]) for row in made}):
        yield Bar(_seconds(micros_of(start)), _seconds(micros_of(end)), "", "open")


def _windows(plan: WindowedAggregate, beat: Beat, chosen: Chosen = bool) -> list[Bar | Pair]:
    """What is retracted, then what is emitted, then what is open."""
    bars = [
        *(_window(row, plan) for row in beat.result.main if chosen(row)),
        *(replace(_window(row, plan), kind="open") for row in beat.open if chosen(row)),
    ]
    return [*_in_order(bars)]


def _in_order(bars: Iterable[Bar]) -> list[Bar]:
    kinds = ("taken", "emitted", "open")
    return sorted(bars, key=lambda bar: (kinds.index(bar.kind), bar.start or 0, bar.end or 0))


def _window(row: Row, plan: AnyOperator | None) -> Bar:
    assert isinstance(plan, WindowedAggregate)
    op = row.get("op", "")
    bar = Bar(None, None, f"{op} {_result(row, plan)}".strip(), "taken" if "-" in op else "emitted")
    window = plan.windowed.window
    if isinstance(window, AllTime):
        return bar
    if isinstance(window, Sliding):
        middle = _second_of(row, plan.upstream.time)
        start, end = middle - window.lookback / 1_000_000, middle + window.reach / 1_000_000
        return replace(bar, start=start, end=end, trigger=middle)
    return replace(bar, start=_second_of(row, "window_start"), end=_second_of(row, "window_end"))


def _result(row: Row, plan: WindowedAggregate) -> str:
    """The aggregates as text; the number of rows alone needs no name."""
    names = [name for name, _ in plan.input.aggregates]
    return str(row["n"]) if names == ["n"] else ", ".join(f"{name} {row[name]}" for name in names)


def _among(row: Row, others: Sequence[Row]) -> bool:
    return any(all(other.get(name) == value for name, value in row.items()) for other in others)


def _second_of(row: Row, time: str) -> float | None:
    return None if row[time] is None else _seconds(micros_of(row[time]))


def _seconds(micros: int) -> float:
    """Seconds after noon, as tables in text have them."""
    return timedelta(microseconds=micros - micros_of(at(0))) / timedelta(seconds=1)
