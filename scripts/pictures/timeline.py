"""Timelines as SVG: event time from left to right, micro-batches from top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

Kind = Literal["row", "late", "out", "left", "right", "rejected", "open", "emitted", "taken"]

WIDTH, _LEFT, _RIGHT = 640, 132, 616
_LINE, _PAD, _CHARACTER = 18, 9, 6.3
_STEPS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)

#: Readable on light and dark pages: the picture brings its own paper.
_STYLE = """
text{font:12px "Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1f2933}
.on{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-opacity:.75}
.head{font-weight:600}.dim{fill:#616e7c}.mark{fill:#7b3fa0}
.paper{fill:#fff;stroke:#d0d7de}.rule{stroke:#d0d7de}.tick{stroke:#eef1f4}
.watermark{stroke:#7b3fa0;stroke-width:1.5;stroke-dasharray:4 3}
.row,.left{fill:#334155}.late,.rejected{fill:#fff;stroke:#c62828;stroke-width:1.8}.out,.right{fill:#2e7d4f}
.open{fill:#f6f8fa;stroke:#8a97a5;stroke-dasharray:3 2}.emitted{fill:#dcefe3;stroke:#2e7d4f}
.taken{fill:#fbe4e4;stroke:#c62828}.pair{stroke:#2e7d4f;stroke-width:1.5}
"""


@dataclass(frozen=True)
class Mark:
    """A row, at its event time."""

    time: float
    kind: Kind = "row"


@dataclass(frozen=True)
class Bar:
    """A window, or a range around the row at `trigger`; None reaches out of the picture."""

    start: float | None
    end: float | None
    label: str
    kind: Kind = "emitted"
    trigger: float | None = None


@dataclass(frozen=True)
class Pair:
    """A row of the left side and one of the right, either of which may be missing."""

    left: float | None
    right: float | None


@dataclass
class Lane:
    """What belongs to one key, or to one side: its rows, and below them bars and pairs."""

    label: str
    marks: list[Mark] = field(default_factory=list)
    bars: list[Bar | Pair] = field(default_factory=list)

    @property
    def filled(self) -> bool:
        return bool(self.marks or self.bars)


@dataclass(frozen=True)
class Band:
    """One micro-batch."""

    label: str
    #: Those in force: perhaps none yet. None where there is no such thing.
    watermarks: Sequence[float] | None
    lanes: Sequence[Lane]
    notes: str = ""


@dataclass(frozen=True)
class Scale:
    """Where in the picture a time lies."""

    low: float
    high: float

    @classmethod
    def of(cls, bands: Sequence[Band]) -> Scale:
        times = [time for band in bands for time in _times(band)]
        low, high = min(times), max(times)
        # A watermark that is far from everything is only told.
        span = max(high - low, 1)
        known = [watermark for band in bands for watermark in band.watermarks or ()]
        near = [watermark for watermark in known if low - span / 4 <= watermark <= high + span / 4]
        low, high = min(low, *near, high), max(high, *near, low + span)
        return cls(low - 0.04 * span, high + 0.04 * span)

    def x(self, time: float | None, outside: float = _LEFT) -> float:
        if time is None:
            return outside
        return round(_LEFT + (time - self.low) / (self.high - self.low) * (_RIGHT - _LEFT), 1)

    def holds(self, time: float) -> bool:
        return self.low <= time <= self.high

    @property
    def ticks(self) -> list[float]:
        step = next(step for step in _STEPS if (self.high - self.low) / step <= 12)
        first = -(-self.low // step) * step
        return [first + n * step for n in range(14) if first + n * step <= self.high]


def draw(title: str, bands: Sequence[Band], axis: str) -> str:
    """The picture as the text of an SVG file."""
    scale = Scale.of(bands)
    body: list[str] = []
    top = 58.0
    for band in bands:
        height = _height(band, scale)
        body += sorted(_band(band, scale, top, height), key=_layer)
        top += height
    axis_ticks = [
        piece
        for tick in scale.ticks
        for piece in (
            _line(scale.x(tick), 54, scale.x(tick), top, "tick"),
            _text(scale.x(tick), 48, f"{tick:g}", "dim", "middle"),
        )
    ]
    height = top + 28
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"/>',
        _text(12, 24, title, "head"),
        _text(12, 48, axis, "dim"),
        *axis_ticks,
        *body,
        *_legend(bands, top + 18),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _band(band: Band, scale: Scale, top: float, height: float) -> Iterator[str]:
    yield _line(1, top, WIDTH - 1, top, "rule")
    yield _text(12, top + 20, band.label)
    yield _text(12, top + 36, _said(band.watermarks), "mark")
    line = top + _PAD
    for lane in band.lanes:
        yield _text(_LEFT - 8, line + 12, lane.label, "dim", "end")
        for mark in lane.marks:
            yield _dot(scale.x(mark.time), line + 8, mark.kind)
        line += _LINE if lane.marks else 0
        for bars in _stacked(lane.bars, scale):
            for bar in bars:
                if isinstance(bar, Bar):
                    yield from _bar(bar, scale, line, [scale.x(w) for w in band.watermarks or ()])
                else:
                    yield from _pair(bar, scale, line)
            line += _LINE
    if band.notes:
        yield _text(_LEFT, line + 12, band.notes, "dim on")
    for watermark in band.watermarks or ():
        if scale.holds(watermark):
            yield _line(scale.x(watermark), top, scale.x(watermark), top + height, "watermark")


def _layer(piece: str) -> int:
    """Watermarks cross bars, and what is written stays readable."""
    return 2 if piece.startswith("<text") else 1 if 'class="watermark"' in piece else 0


def _height(band: Band, scale: Scale) -> float:
    lines = sum(bool(lane.marks) + len(_stacked(lane.bars, scale)) for lane in band.lanes)
    lines += bool(band.notes)
    return max(2 * _PAD + lines * _LINE, 46)


def _said(watermarks: Sequence[float] | None) -> str:
    if watermarks is None:
        return ""
    known = ", ".join(f"{watermark:g}" for watermark in watermarks)
    return f"W = {known}".replace("-", "−") if known else "no W yet"


def _bar(bar: Bar, scale: Scale, top: float, lines: Sequence[float]) -> Iterator[str]:
    start, end = scale.x(bar.start), scale.x(bar.end, _RIGHT)
    yield (
        f'<rect class="{bar.kind}" x="{start:g}" y="{top + 1:g}" width="{round(end - start, 1):g}" '
        'height="15" rx="2"/>'
    )
    if bar.trigger is not None:
        yield _dot(scale.x(bar.trigger), top + 8.5, "out")
    if _fits(bar, scale):
        yield _text(_middle(bar, scale, lines), top + 13, bar.label, "on", "middle")
    else:
        assert end + _room(bar) < WIDTH, f"no room for {bar.label!r}"
        yield _text(end + 4, top + 13, bar.label, "on")


def _middle(bar: Bar, scale: Scale, lines: Sequence[float]) -> float:
    """The place for a label in a bar, off its trigger and off lines that cross it."""
    start, end = scale.x(bar.start), scale.x(bar.end, _RIGHT)
    crossing = [*lines, *([] if bar.trigger is None else [scale.x(bar.trigger)])]
    half = _room(bar) / 2
    places = [start + (end - start) * part for part in (0.5, 0.25, 0.75)]
    inside = [x for x in places if start <= x - half and x + half <= end]
    free = [x for x in inside if all(abs(x - line) > half + 3 for line in crossing)]
    return round([*free, places[0]][0], 1)


def _room(bar: Bar) -> float:
    return len(bar.label) * _CHARACTER + 4


def _pair(pair: Pair, scale: Scale, top: float) -> Iterator[str]:
    ends = [time for time in (pair.left, pair.right) if time is not None]
    middle = top + 8
    yield _line(scale.x(min(ends)), middle, scale.x(max(ends)), middle, "pair")
    if pair.left is not None:
        yield _dot(scale.x(pair.left), middle, "left")
    if pair.right is not None:
        yield _dot(scale.x(pair.right), middle, "right")


def _fits(bar: Bar, scale: Scale) -> bool:
    """Is there room for the label in the bar?"""
    return _room(bar) <= scale.x(bar.end, _RIGHT) - scale.x(bar.start)


def _stacked(bars: Sequence[Bar | Pair], scale: Scale) -> list[list[Bar | Pair]]:
    """Bars in lines, each in the first one where it covers nothing, its label included."""
    lines: list[tuple[float, list[Bar | Pair]]] = []
    for bar in bars:
        start, end = _extent(bar, scale)
        for number, (reached, line) in enumerate(lines):
            if reached <= start:
                lines[number] = (end, [*line, bar])
                break
        else:
            lines.append((end, [bar]))
    return [line for _, line in lines]


def _extent(bar: Bar | Pair, scale: Scale) -> tuple[float, float]:
    if isinstance(bar, Pair):
        ends = [scale.x(time) for time in (bar.left, bar.right) if time is not None]
        return min(ends) - 6, max(ends) + 6
    label = 0 if _fits(bar, scale) else _room(bar) + 4
    return scale.x(bar.start), scale.x(bar.end, _RIGHT) + label


def _times(band: Band) -> Iterator[float]:
    for lane in band.lanes:
        yield from (mark.time for mark in lane.marks)
        for bar in lane.bars:
            ends = (bar.start, bar.end) if isinstance(bar, Bar) else (bar.left, bar.right)
            yield from (time for time in ends if time is not None)


_LEGEND: dict[str, str] = {
    "row": "row",
    "late": "late row",
    "rejected": "rejected",
    "left": "left row",
    "right": "right row",
    "out": "emitted row",
    "open": "open",
    "emitted": "emitted",
    "taken": "retracted",
    "watermark": "W",
}


def _legend(bands: Sequence[Band], y: float) -> Iterator[str]:
    x = 12.0
    for kind in _kinds(bands):
        if kind == "watermark":
            yield _line(x + 5, y - 11, x + 5, y + 3, kind)
        elif kind in ("open", "emitted", "taken"):
            yield f'<rect class="{kind}" x="{x:g}" y="{y - 10:g}" width="14" height="11" rx="2"/>'
        else:
            yield _dot(x + 6, y - 4, kind)
        yield _text(x + 20, y, _LEGEND[kind], "dim")
        x = round(x + 20 + len(_LEGEND[kind]) * _CHARACTER + 18, 1)


def _kinds(bands: Sequence[Band]) -> list[str]:
    """What is to be seen in the picture, in the order of the legend."""
    seen: set[str] = set()
    for band in bands:
        if band.watermarks:
            seen.add("watermark")
        for lane in band.lanes:
            seen |= {mark.kind for mark in lane.marks}
            for bar in lane.bars:
                seen |= {bar.kind} if isinstance(bar, Bar) else {"left", "right"}
                seen |= {"out"} if isinstance(bar, Bar) and bar.trigger is not None else set()
    return [kind for kind in _LEGEND if kind in seen]


def _dot(x: float, y: float, kind: str) -> str:
    if kind in ("right", "out"):
        return f'<rect class="{kind}" x="{x - 4:g}" y="{y - 4:g}" width="8" height="8"/>'
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="4.5"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "") -> str:
    options = "".join(
        f' {name}="{value}"' for name, value in (("class", kind), ("text-anchor", anchor)) if value
    )
    return f'<text x="{x:g}" y="{y:g}"{options}>{escape(said)}</text>'


def spread(marks: Iterable[Mark]) -> list[Mark]:
    """Marks in the order of time, late ones on top."""
    return sorted(marks, key=lambda mark: (mark.time, mark.kind != "late"))
