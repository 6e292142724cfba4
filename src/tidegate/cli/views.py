"""A run as it is shown: a live table on a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from tidegate.cli.progress import Batch

_SHOWN_BATCHES = 15
_HEADINGS = (
    "batch", "rows in", "rows/s", "watermark", "behind", "open", "late", "errors", "rows out", "state",
)  # fmt: skip

#: The counters of each query by its name.
Totals = Mapping[str, Mapping[str, int]]


class View(Protocol):
    """What a run is shown in."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def show(self, batch: Batch) -> None:
        """A batch is done."""
        ...

    def summary(self, totals: Totals, seconds: float, ended: str) -> None:
        """The run is over."""
        ...


def view(console: Console, *, as_json: bool) -> View:
    """The view that fits."""
    if as_json:
        return JsonView()
    return LiveView(console) if console.is_terminal else LineView(console)


class JsonView:
    """One JSON object a line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def show(self, batch: Batch) -> None:
        watermark = batch.watermark and batch.watermark.isoformat()
        values = asdict(batch) | {"watermark": watermark, "behind_seconds": batch.behind}
        _print_json({"type": "batch"} | values)

    def summary(self, totals: Totals, seconds: float, ended: str) -> None:
        _print_json(
            {"type": "summary", "ended": ended, "seconds": round(seconds, 3), "queries": dict(totals)}
        )


class LineView:
    """One line a batch, for logs."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def show(self, batch: Batch) -> None:
        shown = zip(_HEADINGS[1:], _cells(batch)[1:], strict=True)
        facts = ", ".join(f"{heading} {cell}" for heading, cell in shown)
        self.console.print(f"{batch.query} batch {batch.batch}: {facts}")

    def summary(self, totals: Totals, seconds: float, ended: str) -> None:
        for name, counts in totals.items():
            shown = ("rows_in", "rows_out", "late_rows", "errors")
            facts = ", ".join(f"{counts.get(one, 0):,} {one.replace('_', ' ')}" for one in shown)
            self.console.print(f"{name} {ended} after {seconds:.1f} s: {facts}")


class LiveView(LineView):
    """The newest batches as a table that moves."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._batches: deque[Batch] = deque(maxlen=_SHOWN_BATCHES)
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=2)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, batch: Batch) -> None:
        self._batches.append(batch)

    def _table(self) -> Table:
        table = Table("query", *(Column(heading, justify="right") for heading in _HEADINGS))
        for batch in self._batches:
            table.add_row(batch.query, *_cells(batch))
        return table


def _cells(batch: Batch) -> list[str]:
    return [
        str(batch.batch),
        f"{batch.rows_in:,}",
        f"{batch.rows_per_second:,.0f}",
        f"{batch.watermark:%Y-%m-%d %H:%M:%S}" if batch.watermark else "–",
        "–" if batch.behind is None else length(batch.behind),
        f"{batch.open:,}",
        f"{batch.late_rows:,}",
        f"{batch.errors:,}",
        f"{batch.rows_out:,}",
        size(batch.state_bytes),
    ]


def length(seconds: float) -> str:
    """A stretch of time in its two largest units."""
    whole = timedelta(seconds=max(0, round(seconds)))
    hours, rest = divmod(whole.seconds, 3600)
    parts = [(whole.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s")]
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0 s"


def size(count: int) -> str:
    """Bytes in a unit that fits."""
    if count < 1000:
        return f"{count} B"
    power = min(3, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {('KB', 'MB', 'GB')[power - 1]}"


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)
