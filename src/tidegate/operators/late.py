"""What becomes of rows that came too late: counted, and dropped, moved or sent out."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.plan.nodes import LATE_COLUMNS, TIMESTAMP
from tidegate.plan.policies import Drop, LatePolicy, Reassign, SideOutput


@dataclass(frozen=True)
class LateRows:
    """The fate of the late rows of one batch."""

    counts: Counter[str]
    moved: pa.Table | None = None
    sent: pa.Table | None = None


def carries_rows(policy: LatePolicy) -> bool:
    """Does the policy need the rows themselves, not only how many there were?"""
    return not isinstance(policy, Drop)


def handle(policy: LatePolicy, count: int, rows: pa.Table | None, time: str, watermark: int) -> LateRows:
    """Apply the policy to late rows, given as `rows` where the policy carries them."""
    counts = Counter(late_rows=count)
    if rows is None:
        return LateRows(counts + Counter(late_dropped=count))
    late_by = watermark - instants(rows, time)
    if isinstance(policy, SideOutput):
        for field, values in zip(LATE_COLUMNS, (late_by, np.full(count, watermark)), strict=True):
            rows = rows.append_column(field, pa.array(values).cast(field.type))
        return LateRows(counts, sent=rows)
    assert isinstance(policy, Reassign)
    near = rows.filter(pa.array(late_by <= policy.max_lateness))
    counts += Counter(late_reassigned=near.num_rows, late_dropped=count - near.num_rows)
    present = pa.array(np.full(near.num_rows, watermark)).cast(TIMESTAMP)
    return LateRows(counts, moved=near.set_column(near.schema.get_field_index(time), time, present))


def instants(rows: pa.Table, time: str) -> np.ndarray:
    """The event times of rows, none of them null, as microseconds."""
    return rows.column(time).cast(pa.int64()).to_numpy()
