"""SessionEmit: which sessions a batch emits, and in which form. One class per kind of strategy.

Each is called twice a batch: to `close` sessions that nothing can change any more, before the batch's
rows are looked at, and to `ingest` what those rows changed, which it also stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tidegate.kernels.accumulators import Accumulators
from tidegate.kernels.changelog import net_change
from tidegate.kernels.contract import EmitRows
from tidegate.kernels.late import ANY_TIME
from tidegate.kernels.sessions.merge import NUMBER
from tidegate.kernels.sessions.store import END, START, SessionStore
from tidegate.plan.policies import Emission, Retracting
from tidegate.state.pages import KEY

#: Columns of throttled sessions: their rows as last emitted, and whether a change is pending.
_EMITTED, _PENDING = "__tidegate_emitted", "__tidegate_pending"

#: When a row was emitted.
_AT = "__tidegate_at"
_IDENTITY = [KEY, START, END]


@dataclass(frozen=True)
class Changed:
    """What a batch did: sessions as they are now, and the live ones they grew out of."""

    sessions: pl.DataFrame
    replaced: pl.DataFrame | None


@dataclass(frozen=True)
class EmitOnClose:
    """One row per session, when it closes."""

    accumulators: Accumulators

    def close(self, store: SessionStore, previous: int, horizon: int, now: int, emit: EmitRows) -> None:
        closing = store.where(pl.col(END).is_between(previous + 1, horizon), after=previous)
        if closing is not None:
            emit(self.accumulators.finish(closing, *_IDENTITY))

    def ingest(
        self, store: SessionStore, changed: Changed | None, horizon: int, now: int, emit: EmitRows
    ) -> None:
        if changed is not None:
            store.upsert(changed.sessions.drop(NUMBER), changed.replaced)

    def next_due(self, store: SessionStore, horizon: int) -> int | None:
        return store.first_end(horizon)


@dataclass(frozen=True)
class EmitChanges:
    """The net change of each batch, with retractions.

    Every live session was last emitted as its entry says. Finishing an entry again gives the same row
    to the bit, so emitted rows are not kept.
    """

    accumulators: Accumulators
    policy: Retracting

    def close(self, store: SessionStore, previous: int, horizon: int, now: int, emit: EmitRows) -> None:
        """The last value has been emitted already."""

    def ingest(
        self, store: SessionStore, changed: Changed | None, horizon: int, now: int, emit: EmitRows
    ) -> None:
        if changed is None:
            return
        last_emitted = None if changed.replaced is None else self._rows(changed.replaced)
        emit(_change(last_emitted, self._rows(changed.sessions), self.accumulators.names, self.policy))
        store.upsert(changed.sessions.drop(NUMBER), changed.replaced)

    def next_due(self, store: SessionStore, horizon: int) -> int | None:
        return store.last_end_of_a_page()

    def _rows(self, sessions: pl.DataFrame) -> pl.DataFrame:
        return self.accumulators.finish(sessions, NUMBER, *_IDENTITY)


@dataclass(frozen=True)
class ThrottledEmission:
    """As `EmitChanges`, but each session emits once an interval; it carries its rows as last emitted."""

    accumulators: Accumulators
    policy: Retracting

    def close(self, store: SessionStore, previous: int, horizon: int, now: int, emit: EmitRows) -> None:
        # Closing only matters to sessions with a change that is still pending.
        closing = pl.col(_PENDING) & pl.col(END).is_between(previous + 1, horizon)
        sessions = store.where(closing, after=previous)
        if sessions is not None:
            self._flush(sessions.with_row_index(NUMBER), now, emit)

    def ingest(
        self, store: SessionStore, changed: Changed | None, horizon: int, now: int, emit: EmitRows
    ) -> None:
        pending = store.where(pl.col(_PENDING), after=horizon)
        kept = []
        if changed is not None:
            kept.append(changed.sessions.with_columns(pl.lit(True).alias(_PENDING)))
            pending = _without(pending, changed.replaced)
        if pending is not None:
            unused = kept[0].select(pl.col(NUMBER).max()).item() + 1 if kept else 0
            kept.append(pending.with_row_index(NUMBER, unused).filter(self._unthrottled(now)))
        if not any(map(len, kept)):
            return
        sessions = pl.concat(kept, how="diagonal_relaxed")
        first_emission = _EMITTED not in sessions.columns
        emitting = sessions if first_emission else sessions.filter(self._unthrottled(now))
        flushed = self._flush(emitting, now, emit)
        throttled = sessions.join(emitting, on=NUMBER, how="anti")
        entries = pl.concat([flushed, throttled], how="diagonal")
        store.upsert(entries.drop(NUMBER), changed.replaced if changed else None)

    def next_due(self, store: SessionStore, horizon: int) -> int | None:
        pending = store.where(pl.col(_PENDING), after=horizon) is not None
        return ANY_TIME if pending else store.last_end_of_a_page()

    def _unthrottled(self, now: int) -> pl.Expr:
        last = pl.col(_EMITTED).list.eval(pl.element().struct.field(_AT)).list.max()
        return (last + self.policy.interval <= now).fill_null(True)

    def _flush(self, sessions: pl.DataFrame, now: int, emit: EmitRows) -> pl.DataFrame:
        """Emit what changed; the sessions as they are after that."""
        names = self.accumulators.names
        rows = self.accumulators.finish(sessions, NUMBER, *_IDENTITY)
        emit(_change(_last_emitted(sessions), rows, names, self.policy))
        # Without the key: codes are a worker's own, and only those in the column KEY are translated.
        emitted = pl.struct(START, END, *names, pl.lit(now, dtype=pl.Int64).alias(_AT))
        kept = rows.select(NUMBER, pl.concat_list(emitted).alias(_EMITTED))
        flushed = sessions.drop(_EMITTED, strict=False).join(kept, on=NUMBER)
        return flushed.with_columns(pl.lit(False).alias(_PENDING))


SessionEmit = EmitOnClose | EmitChanges | ThrottledEmission


def session_emit(emission: Emission, accumulators: Accumulators) -> SessionEmit:
    """The strategy as something that runs."""
    if not isinstance(emission, Retracting):
        return EmitOnClose(accumulators)  # without lateness a session ends and closes at once
    return (ThrottledEmission if emission.interval else EmitChanges)(accumulators, emission)


def carried(sessions: pl.DataFrame) -> list[pl.Expr]:
    """What merging sessions carry beside their aggregates: all their rows as last emitted."""
    return [pl.col(_EMITTED).drop_nulls().explode().drop_nulls()] if _EMITTED in sessions.columns else []


def _last_emitted(sessions: pl.DataFrame) -> pl.DataFrame | None:
    if _EMITTED not in sessions.columns:
        return None
    return sessions.select(NUMBER, KEY, _EMITTED).explode(_EMITTED).drop_nulls(_EMITTED).unnest(_EMITTED)


def _change(
    last_emitted: pl.DataFrame | None, now: pl.DataFrame, names: Sequence[str], ops: Retracting
) -> pl.DataFrame:
    """The new row replaces the earliest emitted row of a session; its other emitted rows are deleted."""
    rows = [*_IDENTITY, *names]
    if last_emitted is None or not len(last_emitted):
        return net_change(None, now, [NUMBER], rows, ops).drop(NUMBER)
    earliest = last_emitted.sort(START).unique(NUMBER, keep="first", maintain_order=True)
    others = last_emitted.join(earliest, on=[NUMBER, START], how="anti")
    change = net_change(earliest, now, [NUMBER], rows, ops)
    deleted = others.select(NUMBER, *rows, pl.lit("-D").alias("op"))
    return pl.concat([deleted, change.select(deleted.columns)]).drop(NUMBER)


def _without(sessions: pl.DataFrame | None, replaced: pl.DataFrame | None) -> pl.DataFrame | None:
    if sessions is None or replaced is None:
        return sessions
    return sessions.join(replaced, on=[KEY, START], how="anti")
