"""Messages: which fields say what, and how they travel."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.plans import SECOND, hopping, plan_of
from tidegate.dataflow import compile
from tidegate.kernels.invalid_rows import INVALID_ROW
from tidegate.kernels.messages import (
    FACTS,
    KEPT,
    SCHEMA,
    Kind,
    Message,
    count_messages,
    in_order,
    message_batch,
    messages_in,
)
from tidegate.kernels.registry import kernels_of
from tidegate.kernels.routes import Routes, pack_along
from tidegate.kernels.state_size import kept
from tidegate.plan.nodes import Together
from tidegate.state.pages import BucketState, MemoryPages
from tidegate.testing.table import instant_of, to_arrow

ONE_OF_EACH = [
    Message.input(1, "left", 3, b"rows").addressed_to(2),
    Message.output(1, "late", 2, b"rows"),
    Message.counter(0, "late_rows", 7),
    Message.gauge(1, 2, "buffer_size", 5),
    Message.state(1, 2, dict.fromkeys(KEPT) | {"rows": 1 << 62}),
    Message.high_water_mark(0, 1, 1_767_268_800_000_000),
    Message.heartbeat(0, 1, -1),
    Message.load(0, "cpu", 10_000),
    Message.page(1, "p", b"page"),
]

#: What each kind says by; the others of its fields are null.
SAYS = {
    Kind.INPUT: {"name", "vertex", "rows", "blob"},
    Kind.OUTPUT: {"name", "rows", "blob"},
    Kind.COUNTER: {"name", "value"},
    Kind.GAUGE: {"name", "vertex", "value"},
    Kind.STATE: {"vertex", "kept"},
    Kind.HIGH_WATER_MARK: {"source", "time"},
    Kind.HEARTBEAT: {"source", "time"},
    Kind.LOAD: {"name", "value"},
    Kind.PAGE: {"name", "blob"},
}
ALWAYS = {"bucket", "kind", "sender", "number"}


def test_there_is_one_of_each_kind():
    assert [message.kind for message in ONE_OF_EACH] == list(Kind) == list(SAYS)


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda message: message.kind)
def test_a_kind_fills_its_own_fields_and_no_others(message):
    filled = {name for name, value in message._asdict().items() if value is not None}
    assert filled == ALWAYS | SAYS[message.kind]


def test_fields_and_columns_are_the_same():
    assert Message._fields == tuple(SCHEMA.names)


def test_messages_travel_as_rows():
    sent = [message._replace(sender=3, number=n) for n, message in enumerate(ONE_OF_EACH)]
    batch = message_batch(sent)
    assert batch.schema == SCHEMA
    assert messages_in(batch) == sent
    assert messages_in(pa.Table.from_batches([batch.slice(0, 4), batch.slice(4)])) == sent


def test_no_messages_are_no_rows():
    assert message_batch([]).schema == SCHEMA
    assert messages_in(message_batch([])) == []


def test_kinds_are_plain_text_on_the_way():
    """Spark and Arrow filter by them."""
    kinds = message_batch(ONE_OF_EACH).column("kind")
    assert kinds.to_pylist() == [kind.value for kind in Kind]
    assert pc.sum(pc.equal(kinds, Kind.COUNTER)).as_py() == 1


def test_all_that_a_bucket_keeps_is_told():
    [kernel] = kernels_of(compile(plan_of(hopping(SECOND))))
    told = kept(kernel, BucketState(MemoryPages(), "plan"))
    assert told == dict.fromkeys(KEPT, 0) | {"watermark": None, "due": None}


def test_the_facts_are_neither_content_nor_order():
    facts = message_batch(ONE_OF_EACH).select(FACTS)
    assert {"blob", "sender", "number"}.isdisjoint(FACTS)
    assert messages_in(facts) == [message._replace(blob=None) for message in ONE_OF_EACH]


def test_messages_count_in_the_order_they_were_sent_in():
    sent = [
        Message.output(0, "main", n, b"")._replace(sender=sender, number=n)
        for sender in range(3)
        for n in range(4)
    ]
    assert in_order(sent[::-1]) == in_order(sent[5:] + sent[:5]) == sent


def test_only_rows_for_an_input_are_addressed_to_an_operator():
    for message in ONE_OF_EACH[1:]:
        assert message.addressed_to(7) == message
        assert not message.is_for(7)
        assert not message.is_for(2), "a gauge is about an operator, not for it"
    packed = Message.input(0, "left", 1, b"")
    assert not any(packed.is_for(vertex) for vertex in range(3)), "nobody has addressed it yet"
    assert [packed.addressed_to(1).is_for(vertex) for vertex in range(3)] == [False, True, False]


def test_what_has_not_happened_is_not_counted():
    assert list(count_messages(4, {"errors": 0, "late_rows": 2})) == [Message.counter(4, "late_rows", 2)]


def test_rows_are_addressed_to_the_operator_that_reads_them():
    """Two operators have inputs of the same name: the number tells them apart."""
    short, long = plan_of(hopping(SECOND)), plan_of(hopping(5 * SECOND))
    dataflow = compile(Together((("short", short), ("long", long))))
    ways = Routes.through(dataflow, kernels_of(dataflow)).of_sources[0]
    schema = short.upstream.schema.append(pa.field(INVALID_ROW, pa.string()))
    rows = to_arrow([{"ts": instant_of(1)}, {"ts": instant_of(2)}], schema)
    packed = pack_along(ways, rows, None, [0])
    sent = [(one.name, one.vertex, one.rows) for one in packed if one.kind == Kind.INPUT]
    assert sent == [("partials", 0, 2), ("partials", 1, 2)]
