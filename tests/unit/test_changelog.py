"""What is out, what is true now, and the difference; and the reader who applies it."""

import math
from datetime import UTC, datetime

import polars as pl
import pytest

from tidegate.kernels.changelog import latest, net_change
from tidegate.plan.policies import Retracting
from tidegate.testing import Changelog, IllegalChange, replay

UPDATE, INSERT = Retracting(), Retracting(before="-D", after="+I")


def frame(*rows):
    return pl.DataFrame(rows, schema={"k": pl.String, "v": pl.Int64, "w": pl.Float64}, orient="row")


def change(out, now, ops=UPDATE):
    changed = net_change(out, now, ["k"], ["v", "w"], ops)
    return [(row["op"], row["k"], row["v"], row["w"]) for row in changed.to_dicts()]


def test_without_anything_out_everything_is_new():
    assert change(None, frame(("a", 1, None))) == [("+I", "a", 1, None)]


def test_the_difference_takes_back_first():
    out = frame(("a", 1, 1.0), ("b", 2, 2.0), ("gone", 9, 9.0))
    now = frame(("c", 7, 7.0), ("a", 5, 1.0), ("b", 2, 2.0))
    assert change(out, now) == [("-U", "a", 1, 1.0), ("+I", "c", 7, 7.0), ("+U", "a", 5, 1.0)]
    assert change(out, now, INSERT) == [("-D", "a", 1, 1.0), ("+I", "c", 7, 7.0), ("+I", "a", 5, 1.0)]


@pytest.mark.parametrize("value", [None, math.nan, 0.0, math.inf])
def test_a_value_equal_to_itself_is_no_change(value):
    assert change(frame(("a", 1, value)), frame(("a", 1, value))) == []


@pytest.mark.parametrize(("old", "new"), [(None, 1.0), (1.0, None), (None, math.nan), (math.nan, 1.0)])
def test_null_is_a_value_of_its_own(old, new):
    [before, after] = change(frame(("a", 1, old)), frame(("a", 1, new)))
    assert [before[0], after[0]] == ["-U", "+U"]
    assert str([before[3], after[3]]) == str([old, new])


def test_the_latest_entry_counts():
    pages = [frame(("a", 1, 1.0), ("b", 1, 1.0)), frame(("a", 2, 2.0)), frame(("a", 3, None))]
    assert latest(pages, ["k"]).sort("k").rows() == [("a", 3, None), ("b", 1, 1.0)]
    assert latest([], ["k"]) is None


# -- the reader -----------------------------------------------------------------------------------


def row(op, key="a", n=1, start=0):
    at = [datetime(2024, 1, 1, 0, minute, tzinfo=UTC) for minute in (start, start + 1)]
    return {"user": key, "window_start": at[0], "window_end": at[1], "n": n, "op": op}


def plain(changed):
    return {name: value for name, value in changed.items() if name != "op"}


def test_the_table_after_each_batch():
    batches = [
        [row("+I"), row("+I", "b", 5)],
        [row("-U"), row("+U", n=2)],
        [],
        [row("-D", "b", 5), row("-D", n=2), row("+I", n=3)],
    ]
    expected = [
        [row("", n=1), row("", "b", 5)],
        [row("", "b", 5), row("", n=2)],
        [row("", "b", 5), row("", n=2)],
        [row("", n=3)],
    ]
    assert replay(batches, ["user"]) == [[plain(r) for r in table] for table in expected]


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        ([row("+I")], "a second live row for one window"),
        ([row("-U", n=2), row("+U", n=3)], "takes back\n"),
        ([row("-D", "b")], "takes back a row that is not there"),
        ([row("-D", start=5)], "takes back a row that is not there"),
        ([row("+U", "b")], "updates nothing that this batch took back"),
        ([row("-U")], "1 rows were taken back for an update that never came"),
        ([row("-D"), row("+U", n=2)], "updates nothing that this batch took back"),
        ([row("+I", start=5), row("-D")], "after an insertion for its key"),
        ([row("?")], "no such change"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_nobody_could_apply_is_refused(batch, complaint):
    table = Changelog(["user"])
    table.apply([row("+I")])
    with pytest.raises(IllegalChange) as error:
        table.apply(batch)
    assert complaint in str(error.value)


def test_a_session_that_grew_updates_the_row_within_it():
    table = Changelog(["user"])
    table.apply([row("+I", start=5), row("+I", start=9)])
    grown = row("+U", n=3, start=4) | {"window_end": row("", start=9)["window_end"]}
    assert table.apply([row("-U", start=5), row("-D", start=9), grown]) == [plain(grown)]
    elsewhere = row("+U", start=20)
    with pytest.raises(IllegalChange, match="updates nothing that this batch took back"):
        table.apply([grown | {"op": "-U"}, elsewhere])


def test_other_keys_may_come_in_any_order():
    table = Changelog(["user"])
    table.apply([row("+I"), row("+I", "b")])
    assert len(table.apply([row("-U"), row("+U", n=2), row("-U", "b"), row("+U", "b", 7)])) == 2


def test_a_nan_is_taken_back_by_a_nan():
    table = Changelog(["user"])
    table.apply([row("+I", n=math.nan)])
    assert table.apply([row("-D", n=float("nan"))]) == []
