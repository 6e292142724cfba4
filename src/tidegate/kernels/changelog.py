"""The algebra of retractions: the rows last emitted, the rows that are true now, the difference."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.plan.policies import Retracting

_EMITTED = "__tidegate_emitted"


def net_change(
    last_emitted: pl.DataFrame | None,
    now: pl.DataFrame,
    identity: Sequence[str],
    values: Sequence[str],
    ops: Retracting,
) -> pl.DataFrame:
    """The rows that turn what was last emitted into what is true now, retractions first, with `op`.

    Both sides hold one row per identity. Rows that did not change are left out.
    """
    if last_emitted is None:
        return now.with_columns(op=pl.lit(ops.first))
    old = last_emitted.select(*identity, *values).with_columns(pl.lit(True).alias(_EMITTED))
    both = now.join(old, on=list(identity), how="left", suffix=_EMITTED, maintain_order="left")
    known = pl.col(_EMITTED).is_not_null()
    same = pl.all_horizontal(_same(both, v) for v in values)
    changed = both.filter(known & ~same)
    before = changed.select(*identity, *(pl.col(v + _EMITTED).alias(v) for v in values))
    return pl.concat(
        [
            before.with_columns(op=pl.lit(ops.before)),
            both.filter(~known).select(*identity, *values).with_columns(op=pl.lit(ops.first)),
            changed.select(*identity, *values).with_columns(op=pl.lit(ops.after)),
        ]
    )


def latest(rows: Sequence[pl.DataFrame], identity: Sequence[str]) -> pl.DataFrame | None:
    """The last entry of each identity, of entries in the order they were written."""
    if not rows:
        return None
    return pl.concat(rows).unique(list(identity), keep="last", maintain_order=True)


def _same(both: pl.DataFrame, value: str) -> pl.Expr:
    """Is a value as last emitted, to the bit? Zeros of either sign are equal; their inverses are not."""
    now, emitted = pl.col(value), pl.col(value + _EMITTED)
    same = now.eq_missing(emitted)
    return same & (1 / now).eq_missing(1 / emitted) if both.schema[value].is_float() else same
