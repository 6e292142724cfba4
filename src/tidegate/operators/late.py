"""What becomes of rows that came too late: counted, and dropped, moved or sent out."""

from collections import Counter
from dataclasses import dataclass

import polars as pl

from tidegate.plan.policies import Drop, LatePolicy, Reassign, SideOutput


@dataclass(frozen=True)
class LateRows:
    """The fate of the late rows of one batch."""

    counts: Counter[str]
    moved: pl.DataFrame | None = None
    sent: pl.DataFrame | None = None


def carries_rows(policy: LatePolicy) -> bool:
    """Does the policy need the rows themselves, not only how many there were?"""
    return not isinstance(policy, Drop)


def handle(
    policy: LatePolicy, late: int, rows: pl.DataFrame | None, time: str, watermark: int
) -> LateRows:
    """Apply the policy to `late` rows, given as `rows` where the policy carries them."""
    counts = Counter(late_rows=late)
    if isinstance(policy, Drop) or rows is None:
        return LateRows(counts + Counter(late_dropped=late))
    instant = pl.lit(watermark).cast(rows.schema[time])
    late_by = watermark - pl.col(time).to_physical()
    if isinstance(policy, SideOutput):
        sent = rows.with_columns(late_by=late_by.cast(pl.Duration("us")), watermark=instant)
        return LateRows(counts, sent=sent)
    assert isinstance(policy, Reassign)
    near = rows.filter(late_by <= policy.max_lateness)
    counts += Counter(late_reassigned=len(near), late_dropped=late - len(near))
    return LateRows(counts, moved=near.with_columns(instant.alias(time)))
