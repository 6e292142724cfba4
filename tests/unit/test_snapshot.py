"""Snapshots: equal states are equal bytes, and what is no whole snapshot is refused by name."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import tidegate as tg
from tests.support.plans import dedupe_plan, logical_plan
from tidegate.errors import StateError
from tidegate.kernels import snapshot
from tidegate.plan.policies import Retracting
from tidegate.plan.windows import AllTime
from tidegate.spark.checkpoint import inspection

KEYS = pa.table({"user": ["bob", None, "ann"], "shop": [1, 2, 3]})
STATE = pa.table({"n.n": [1, 2, 3], "total.sum": [0.5, None, -1.0]})
WHOLE = snapshot.encode(KEYS, STATE)


def test_one_line_a_key_in_their_order():
    *lines, checksum, rest = WHOLE.decode().split("\n")
    assert lines == [
        "tidegate snapshot 1",
        '{"keys":[["user","string"],["shop","int64"]],"rows":3,'
        '"state":[["n.n","int64"],["total.sum","double"]]}',
        '[["ann",3],[3,-1.0]]',
        '[["bob",1],[1,0.5]]',
        "[[null,2],[2,null]]",
    ]
    assert checksum.startswith("sha256 ")
    assert len(checksum) == len("sha256 ") + 64
    assert rest == ""


def test_it_is_read_back():
    read = tg.read_snapshot(WHOLE)
    assert read.keys == (("user", "string"), ("shop", "int64"))
    assert read.state == (("n.n", "int64"), ("total.sum", "double"))
    assert read.rows == ((("ann", 3), (3, -1.0)), (("bob", 1), (1, 0.5)), ((None, 2), (2, None)))


def test_equal_states_are_equal_bytes_whatever_the_order_and_the_chunks():
    order = [2, 0, 1]
    other = [
        pa.concat_tables([t.take(order).slice(0, 1), t.take(order).slice(1)]) for t in (KEYS, STATE)
    ]
    assert snapshot.encode(*other) == WHOLE
    changed = STATE.set_column(0, "n.n", pa.array([1, 2, 4]))
    assert snapshot.encode(KEYS, changed) != WHOLE


def test_minus_zero_is_the_same_key():
    one, other = (pa.table({"k": [zero]}) for zero in (0.0, -0.0))
    state = STATE.slice(0, 1)
    assert snapshot.encode(one, state) == snapshot.encode(other, state)


def test_a_fold_without_a_key_has_one_row():
    whole = snapshot.encode(pa.table({}), STATE.slice(0, 1))
    assert tg.read_snapshot(whole).rows == (((), (1, 0.5)),)


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (math.nan, pa.float64(), "nan"),
        (-math.inf, pa.float64(), "-inf"),
        (1.1, pa.float32(), 1.100000023841858),
        (True, pa.bool_(), True),
        ("ä\n", pa.string(), "ä\n"),
        (b"\x00\xff", pa.binary(), "AP8="),
        (Decimal("1.10"), pa.decimal128(10, 2), "1.10"),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), 1_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("us"), 1_000_000),
        (date(1969, 12, 31), pa.date32(), -1),
        (timedelta(seconds=-1), pa.duration("us"), -1_000_000),
        ([1, None], pa.list_(pa.int64()), [1, None]),
        ({"a": 1, "b": math.inf}, pa.struct([("a", pa.int64()), ("b", pa.float64())]), [1, "inf"]),
    ],
)
def test_values_of_every_type(value, kind, shown):
    table = pa.table({"v": pa.array([value], kind)})
    assert tg.read_snapshot(snapshot.encode(pa.table({}), table)).rows == (((), (shown,)),)


def test_keys_of_every_type_have_an_order():
    for values, kind in (
        ([True, False], pa.bool_()),
        ([b"b", b"a"], pa.binary()),
        ([Decimal("2.0"), Decimal("1.0")], pa.decimal128(10, 1)),
        ([date(2024, 1, 2), date(2024, 1, 1)], pa.date32()),
        ([math.nan, 1.0], pa.float64()),
    ):
        keys = pa.table({"k": pa.array(values, kind)})
        assert [
            state for _, state in tg.read_snapshot(snapshot.encode(keys, STATE.slice(0, 2))).rows
        ] == [
            (2, None),
            (1, 0.5),
        ]


# -- what is refused ------------------------------------------------------------------------------


def refusal(data):
    with pytest.raises(StateError) as raised:
        tg.read_snapshot(data)
    return str(raised.value)


def test_every_way_to_cut_it_short_is_noticed():
    for length in range(len(WHOLE)):
        message = refusal(WHOLE[:length])
        assert "cut short" in message or "no snapshot" in message or "of version ''" in message


def test_it_says_how_much_is_there():
    cut = WHOLE.index(b"[[null")
    assert refusal(WHOLE[: cut + 3]) == (
        f"the snapshot is cut short: it ends after {cut + 3} bytes, before the checksum, "
        "with 2 of its 3 keys"
    )
    assert refusal(b"tidegate snapshot 1\n") == (
        "the snapshot is cut short: it ends after 20 bytes, before its columns are named"
    )


def test_a_foreign_file():
    assert refusal(b"PAR1 and so on, for many bytes") == (
        "this is no snapshot: it begins with b'PAR1 and so on, for ', not with b'tidegate snapshot '"
    )
    assert refusal(b"") == "this is no snapshot: it begins with b'', not with b'tidegate snapshot '"


def test_another_version():
    other = WHOLE.replace(b"snapshot 1", b"snapshot 2", 1)
    assert refusal(other) == "a snapshot of version '2', but this tidegate reads 1"


@pytest.mark.parametrize("place", [25, 120, len(WHOLE) - 5])
def test_a_changed_byte(place):
    damaged = bytearray(WHOLE)
    damaged[place] ^= 1
    message = refusal(bytes(damaged))
    assert "damaged" in message or "cut short" in message


def test_something_behind_the_end():
    assert refusal(WHOLE + b"x") == "the snapshot has something behind its end"


def test_of_several_folds_in_one_checkpoint_there_is_none(monkeypatch):
    running = logical_plan(AllTime(), emission=Retracting())
    fold, other = (("operator", plan.identity(), {}) for plan in (running, dedupe_plan(10)))
    monkeypatch.setattr(inspection, "_operators_of", lambda *_: [fold, other, fold])
    with pytest.raises(StateError) as raised:
        inspection.snapshot_of(None, "checkpoint")
    assert str(raised.value) == (
        "checkpoint holds 2 running folds side by side, and a snapshot is of one: "
        "give each a query of its own"
    )
