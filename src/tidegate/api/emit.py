"""Emit strategies, `tg.emit`: when a window emits results, and in which form."""

from __future__ import annotations

from tidegate.plan.policies import OnWatermark, OnWindowClose, Retracting
from tidegate.plan.time import Duration, micros


def on_watermark() -> OnWatermark:
    """One row when the watermark passes the window's end; a corrected row if late rows change it.

    >>> print(tg.emit.on_watermark())
    on_watermark
    """
    return OnWatermark()


def on_window_close() -> OnWindowClose:
    """Exactly one row, when the window's end and the allowed lateness have passed.

    >>> print(tg.emit.on_window_close())
    on_window_close
    """
    return OnWindowClose()


def final() -> OnWindowClose:
    """Exactly one row, when the window's end has passed; no lateness is allowed.

    >>> print(tg.emit.final())
    final
    """
    return OnWindowClose(final=True)


def on_update() -> Retracting:
    """Every change, once per batch: first `+I`, then `-U` with the old row and `+U` with the new one.

    >>> print(tg.emit.on_update())
    on_update
    """
    return Retracting()


def changelog() -> Retracting:
    """The same changes as inserts and deletes: `-D` with the old row, `+I` with the new one.

    >>> print(tg.emit.changelog())
    changelog
    """
    return Retracting(first="+I", before="-D", after="+I")


def periodic(interval: Duration) -> Retracting:
    """Like `on_update`, but at most once per interval of processing time for each window.

    >>> print(tg.emit.periodic("5 s"))
    periodic(5 seconds)
    """
    return Retracting(interval=micros(interval, "periodic(interval)"))
