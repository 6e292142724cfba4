"""Calls that must run where the driver is: in this process, or on the server of a Connect session.

A checkpoint and its sinks are reached from the driver. The client of a Connect session may be another
machine, with other disks. So what a start or a stop does to files and tables is a value that is shipped:
a function of importable code with its arguments, and neither sessions nor locks among them.
"""

from __future__ import annotations

import base64
import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidegate.errors import NotInstalled, StartError

T = TypeVar("T")

_CALL, _ANSWER = "tidegate_call", "answer binary"
#: The option that carries a call. Spark redacts options of such a name, and a sink may hold a password.
_PICKLED = "pickled_secret"


def is_connect(spark: SparkSession) -> bool:
    """Is the session a client of a Spark Connect server?"""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def on_driver(spark: SparkSession, call: Callable[[], T]) -> T:
    """Run a call on the driver, and return or raise what it does there."""
    if not is_connect(spark):
        return call()
    packed = base64.b64encode(_packed(call)).decode("ascii")
    try:
        spark.dataSource.register(CallSource)
        [row] = spark.read.format(_CALL).option(_PICKLED, packed).load().collect()
    except PySparkException as error:
        raise _without_tidegate(error) or error from error
    return _opened(bytes(row[0]))


def on_driver_with_session(spark: SparkSession, call: Callable[[SparkSession], T]) -> T:
    """Run a call that needs a session on the driver, and return or raise what it does there.

    On a server only `foreachBatch` has both, so a stream of one batch runs it.
    """
    if not is_connect(spark):
        return call(spark)
    answer = f"tidegate-{uuid.uuid4().hex}"
    one_batch = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    running = one_batch.writeStream.foreachBatch(_SessionCall(_packed(call), answer))
    running.trigger(availableNow=True).start().awaitTermination()
    return _opened(on_driver(spark, partial(_fetched, answer)))


class _SessionCall:
    """A function for `foreachBatch` that runs a call once and leaves its answer on the driver."""

    def __init__(self, call: bytes, answer: str) -> None:
        self._call, self._answer = call, answer

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        place = _place(self._answer)
        if not place.exists():
            place.write_bytes(_answered(partial(pickle.loads(self._call), batch.sparkSession)))


class CallSource(DataSource):
    """A batch data source that is not about data: it plans by running a call, and reads the answer."""

    @classmethod
    def name(cls) -> str:
        return _CALL

    def schema(self) -> str:
        return _ANSWER

    def reader(self, schema: Any) -> DataSourceReader:
        return _CallReader(base64.b64decode(self.options[_PICKLED]))


class _CallReader(DataSourceReader):
    def __init__(self, call: bytes) -> None:
        self._call = call

    def partitions(self) -> Sequence[InputPartition]:
        """Spark plans on the driver."""
        return [InputPartition(_answered(pickle.loads(self._call)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        yield (partition.value,)


def _packed(call: Callable[..., Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(call))  # type: ignore[no-untyped-call]
    except Exception as error:  # what pickling raises depends on what cannot be pickled
        raise StartError(
            "over Spark Connect sinks and functions are shipped to the server, and this one cannot be: "
            f"{error}"
        ) from error


def _answered(call: Callable[[], Any]) -> bytes:
    """What a call returns or raises, as bytes."""
    try:
        answer: tuple[Any, BaseException | None] = call(), None
    except Exception as error:
        answer = None, error
    try:
        return bytes(cloudpickle.dumps(answer))  # type: ignore[no-untyped-call]
    except Exception as error:
        told = answer[1] if answer[1] is not None else error
        return pickle.dumps((None, StartError(f"{type(told).__name__}: {told}")))


def _opened(answer: bytes) -> Any:
    value, error = pickle.loads(answer)
    if error is not None:
        raise error
    return value


def _place(answer: str) -> Path:
    return Path(tempfile.gettempdir()) / answer


def _fetched(answer: str) -> bytes:
    place = _place(answer)
    content = place.read_bytes()
    place.unlink()
    return content


def _without_tidegate(error: PySparkException) -> NotInstalled | None:
    if "No module named 'tidegate" not in str(error):
        return None
    return NotInstalled(
        "the Python of the Spark Connect server, or that of its executors, has no tidegate: install the "
        "version that this client has there, for the driver and the executors"
    )
