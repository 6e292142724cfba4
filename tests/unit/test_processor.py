"""The stateful processor: what it does before there are rows, and with the first ones."""

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Row

from tests.plans import hopping, plan_of
from tidegate.operators.kernels import kernels_of
from tidegate.spark.processor import KernelProcessor

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
    """A MapState in memory."""

    getValue = dict.get
    updateValue = dict.__setitem__
    removeKey = dict.pop


@pytest.fixture
def packed():
    [kernel] = kernels_of(plan_of(hopping(10)))
    return CloudPickleSerializer().dumps(KernelProcessor(kernel, "operator", "plan"))


def test_a_process_that_asks_for_the_states_loads_none_of_the_libraries(packed):
    command = [sys.executable, "-c", ASKED_FOR_ITS_STATES]
    done = subprocess.run(command, input=packed, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines() == ["pages", ""]


def test_the_first_rows_open_the_kernel_and_others_rows_pass(packed):
    processor, pages = pickle.loads(packed), Pages()
    processor.init(SimpleNamespace(getMapState=lambda *_: pages))
    times = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0, getCurrentProcessingTimeInMs=lambda: 7)
    passing = Row(bucket=3, channel="late", rows=1, blob=b"as it is", sender=0)
    assert list(processor.handleInputRows((3,), iter([passing]), times)) == [passing]
    assert pages == {}
    processor.close()
