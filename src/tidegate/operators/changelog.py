"""The algebra of results that are taken back: what is out, what is true now, and the difference."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.plan.policies import Retracting

_OUT = "__tidegate_out"


def net_change(
    out: pl.DataFrame | None,
    now: pl.DataFrame,
    identity: Sequence[str],
    values: Sequence[str],
    ops: Retracting,
) -> pl.DataFrame:
    """The rows that turn what is out into what is true now, retractions first, with their `op`.

    Both sides hold one row per identity. A row that did not change is not mentioned.
    """
    if out is None:
        return now.with_columns(op=pl.lit(ops.first))
    old = out.select(*identity, *values).with_columns(pl.lit(True).alias(_OUT))
    both = now.join(old, on=list(identity), how="left", suffix=_OUT, maintain_order="left")
    known = pl.col(_OUT).is_not_null()
    same = pl.all_horizontal(_same(both, v) for v in values)
    changed = both.filter(known & ~same)
    before = changed.select(*identity, *(pl.col(v + _OUT).alias(v) for v in values))
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
    """Is a value what is out, to the bit? Zeros of either sign are equal; their inverses are not."""
    now, out = pl.col(value), pl.col(value + _OUT)
    same = now.eq_missing(out)
    return same & (1 / now).eq_missing(1 / out) if both.schema[value].is_float() else same
