"""The stateful processor: what it does before there are rows, and with the first ones."""

import pickle
import subprocess
import sys
from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer

import tidegate as tg
from tests.support.plans import hopping, plan_of
from tests.support.time_limits import HANG
from tidegate.dataflow import compile
from tidegate.kernels.messages import Kind, Message
from tidegate.kernels.registry import kernels_of
from tidegate.optimize import optimize
from tidegate.plan.schema import TIMESTAMP
from tidegate.spark.host import HostedKernel, Work, message_row
from tidegate.spark.processor import KernelProcessor
from tidegate.testing import Stream, rows
from tidegate.testing.table import to_arrow

CLICKS_SCHEMA = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("price", pa.float64())])
CLICKS = tg.events(Stream(CLICKS_SCHEMA), time="ts")

ASKED_FOR_ITS_STATES = """
import pickle, sys

class Handle:
    def getMapState(self, name, *types):
        print(name)

processor = pickle.load(sys.stdin.buffer)
processor.init(Handle())
processor.close()
print(*sorted({"numpy", "pandas", "polars", "pyarrow"} & set(sys.modules)))
"""


class Pages(dict):
    """A MapState in memory; Spark warns of a key that is not there, so nobody may ask for one."""

    containsKey = dict.__contains__
    getValue = dict.__getitem__
    updateValue = dict.__setitem__
    removeKey = dict.pop


@pytest.fixture
def packed():
    [kernel] = kernels_of(compile(plan_of(hopping(10))))
    return CloudPickleSerializer().dumps(KernelProcessor(Work(kernel), "operator", "plan"))


def test_a_process_that_asks_for_the_states_loads_none_of_the_libraries(packed):
    command = [sys.executable, "-c", ASKED_FOR_ITS_STATES]
    done = subprocess.run(command, input=packed, capture_output=True, timeout=HANG, check=True)
    assert done.stdout.decode().splitlines() == ["pages", ""]


def test_the_first_rows_open_the_kernel_and_others_rows_pass(packed):
    processor, pages = pickle.loads(packed), Pages()
    processor.init(SimpleNamespace(getMapState=lambda *_: pages))
    times = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0, getCurrentProcessingTimeInMs=lambda: 7)
    passing = [
        message_row(Message.output(3, "late", 1, b"as it is")),
        message_row(Message.input(3, "partials", 1, b"of another operator").addressed_to(1)),
    ]
    assert list(processor.handleInputRows((3,), iter(passing), times)) == passing
    assert pages == {}
    processor.close()


@pytest.mark.parametrize("passage", ["fold", "dedupe", "admit"])
def test_messages_count_in_the_order_they_were_sent_in(passage):
    """Spark fetches from several machines at once: whose messages come first is another each time."""
    programs = {
        "fold": CLICKS.key_by("user").agg(spend=tg.sum("price"), last=tg.last("price")),
        "dedupe": CLICKS.dedupe(on="user", within="1 hour"),
        "admit": CLICKS.admit(tg.sla(max_rate=1, capacity=2), stream="user"),
    }
    [kernel] = kernels_of(compile(optimize(programs[passage].node)))
    [only] = kernel.inputs
    sent = []
    for sender, price in enumerate([0.1, 0.2, 0.3, 1e16]):
        table = f"ts | user | price\n1 | ann | {price}\n1 | ann | {price * 3}"
        messages = only.pack(to_arrow(rows(table, CLICKS_SCHEMA), CLICKS_SCHEMA), [0])
        sent += (one.addressed_to(0)._replace(sender=sender, number=n) for n, one in enumerate(messages))
    assert len(sent) >= 4
    results = [taken_in(kernel, given) for given in (sent, sent[::-1], sent[2:] + sent[:2])]
    assert results[0] == results[1] == results[2]


def taken_in(kernel, messages):
    """What a bucket puts out for messages that come in this order."""
    host = HostedKernel(Work(kernel), uuid4().hex, "plan", NoTimers(), Pages())
    times = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0, getCurrentProcessingTimeInMs=lambda: 7)
    out = list(host.on_rows(0, iter([message_row(one) for one in messages]), times))
    return [row for row in out if row.kind not in (Kind.GAUGE, Kind.STATE)]


class NoTimers:
    def registerTimer(self, time: int) -> None:
        pass
