"""SessionEmit: which sessions a batch puts out, and in which form. One class per kind of strategy.

Each is asked twice a batch: to `close` sessions nothing can change any more, before the batch's
rows are looked at, and to `take_in` what those rows changed, which it also keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tidegate.operators.accumulators import Accumulators
from tidegate.operators.changelog import net_change
from tidegate.operators.keyed import Put
from tidegate.operators.session_merge import NUMBER
from tidegate.operators.session_store import END, START, SessionStore
from tidegate.operators.state import KEY
from tidegate.operators.windowed import ANY_TIME
from tidegate.plan.policies import Emission, Retracting

#: Columns of sessions that take turns: their rows that are out, and whether those no longer hold.
_OUT, _WAITING = "__tidegate_out", "__tidegate_waiting"

#: When a row went out.
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

    def close(self, store: SessionStore, was: int, horizon: int, now: int, put: Put) -> None:
        closing = store.where(pl.col(END).is_between(was + 1, horizon), after=was)
        if closing is not None:
            put(self.accumulators.finish(closing, *_IDENTITY))

    def take_in(
        self, store: SessionStore, changed: Changed | None, horizon: int, now: int, put: Put
    ) -> None:
        if changed is not None:
            store.put(changed.sessions.drop(NUMBER), changed.replaced)

    def next_due(self, store: SessionStore, horizon: int) -> int | None:
        return store.first_end(horizon)


@dataclass(frozen=True)
class EmitChanges:
    """The net change of each batch, with retractions.

    Every live session is out as its entry says: finishing an entry again gives the same row to the
    bit, so what is out needs no keeping.
    """

    accumulators: Accumulators
    policy: Retracting

    def close(self, store: SessionStore, was: int, horizon: int, now: int, put: Put) -> None:
        """The last value is out already."""

    def take_in(
        self, store: SessionStore, changed: Changed | None, horizon: int, now: int, put: Put
    ) -> None:
        if changed is None:
            return
        out = None if changed.replaced is None else self._rows(changed.replaced)
        put(_change(out, self._rows(changed.sessions), self.accumulators.names, self.policy))
        store.put(changed.sessions.drop(NUMBER), changed.replaced)

    def next_due(self, store: SessionStore, horizon: int) -> int | None:
        return store.last_end_of_a_page()

    def _rows(self, sessions: pl.DataFrame) -> pl.DataFrame:
        return self.accumulators.finish(sessions, NUMBER, *_IDENTITY)


@dataclass(frozen=True)
class EmitByTurns:
    """As `EmitChanges`, but a session that spoke lately waits; it carries its rows that are out."""

    accumulators: Accumulators
    policy: Retracting

    def close(self, store: SessionStore, was: int, horizon: int, now: int, put: Put) -> None:
        # Closing only matters to sessions whose last value still waits for its turn.
        closing = store.where(pl.col(_WAITING) & pl.col(END).is_between(was + 1, horizon), after=was)
        if closing is not None:
            self._speak(closing.with_row_index(NUMBER), now, put)

    def take_in(
        self, store: SessionStore, changed: Changed | None, horizon: int, now: int, put: Put
    ) -> None:
        waiting = store.where(pl.col(_WAITING), after=horizon)
        kept = []
        if changed is not None:
            kept.append(changed.sessions.with_columns(pl.lit(True).alias(_WAITING)))
            waiting = _without(waiting, changed.replaced)
        if waiting is not None:
            unused = kept[0].select(pl.col(NUMBER).max()).item() + 1 if kept else 0
            kept.append(waiting.with_row_index(NUMBER, unused).filter(self._its_turn(now)))
        if not any(map(len, kept)):
            return
        sessions = pl.concat(kept, how="diagonal_relaxed")
        speaking = sessions if _OUT not in sessions.columns else sessions.filter(self._its_turn(now))
        spoken = self._speak(speaking, now, put)
        silent = sessions.join(speaking, on=NUMBER, how="anti")
        entries = pl.concat([spoken, silent], how="diagonal")
        store.put(entries.drop(NUMBER), changed.replaced if changed else None)

    def next_due(self, store: SessionStore, horizon: int) -> int | None:
        waits = store.where(pl.col(_WAITING), after=horizon) is not None
        return ANY_TIME if waits else store.last_end_of_a_page()

    def _its_turn(self, now: int) -> pl.Expr:
        spoke = pl.col(_OUT).list.eval(pl.element().struct.field(_AT)).list.max()
        return (spoke + self.policy.interval <= now).fill_null(True)

    def _speak(self, sessions: pl.DataFrame, now: int, put: Put) -> pl.DataFrame:
        """Put out what changed; the sessions as they are after that."""
        names = self.accumulators.names
        rows = self.accumulators.finish(sessions, NUMBER, *_IDENTITY)
        put(_change(_rows_out(sessions), rows, names, self.policy))
        # Without the key: codes are a worker's own, and only those in the column KEY are translated.
        out = pl.struct(START, END, *names, pl.lit(now, dtype=pl.Int64).alias(_AT))
        kept = rows.select(NUMBER, pl.concat_list(out).alias(_OUT))
        spoken = sessions.drop(_OUT, strict=False).join(kept, on=NUMBER)
        return spoken.with_columns(pl.lit(False).alias(_WAITING))


SessionEmit = EmitOnClose | EmitChanges | EmitByTurns


def session_emit(emission: Emission, accumulators: Accumulators) -> SessionEmit:
    """The strategy as something that runs."""
    if not isinstance(emission, Retracting):
        return EmitOnClose(accumulators)  # without lateness a session ends and closes at once
    return (EmitByTurns if emission.interval else EmitChanges)(accumulators, emission)


def carried(sessions: pl.DataFrame) -> list[pl.Expr]:
    """What sessions carry beside their aggregates, when they become one: all their rows that are out."""
    return [pl.col(_OUT).drop_nulls().explode().drop_nulls()] if _OUT in sessions.columns else []


def _rows_out(sessions: pl.DataFrame) -> pl.DataFrame | None:
    if _OUT not in sessions.columns:
        return None
    return sessions.select(NUMBER, KEY, _OUT).explode(_OUT).drop_nulls(_OUT).unnest(_OUT)


def _change(
    out: pl.DataFrame | None, now: pl.DataFrame, names: Sequence[str], ops: Retracting
) -> pl.DataFrame:
    """Of the rows of a session that are out the earliest is followed by the new one, the others go."""
    rows = [*_IDENTITY, *names]
    if out is None or not len(out):
        return net_change(None, now, [NUMBER], rows, ops).drop(NUMBER)
    earliest = out.sort(START).unique(NUMBER, keep="first", maintain_order=True)
    others = out.join(earliest, on=[NUMBER, START], how="anti")
    change = net_change(earliest, now, [NUMBER], rows, ops)
    taken_back = others.select(NUMBER, *rows, pl.lit("-D").alias("op"))
    return pl.concat([taken_back, change.select(taken_back.columns)]).drop(NUMBER)


def _without(sessions: pl.DataFrame | None, replaced: pl.DataFrame | None) -> pl.DataFrame | None:
    if sessions is None or replaced is None:
        return sessions
    return sessions.join(replaced, on=[KEY, START], how="anti")
