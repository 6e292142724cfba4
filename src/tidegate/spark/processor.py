"""The one stateful processor: Spark is told its state, and it hosts every kernel.

Before a query's first batch Spark starts a Python process for each stateful operator, only to ask for
the names of its states. So this module loads nothing but Spark, and the kernel comes packed: it is
opened, with all that it needs, by the first worker that has work for it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from tidegate.spark.host import HostedKernel, Work

# As objects, not as text: Spark would parse text in a call of its own, four times a task.
_NAME = StructType([StructField("name", StringType())])
_PAGE = StructType([StructField("page", StringType())])


#: The program that Spark asks a processor for its states with. It prints what it does.
_ASKS_FOR_STATES = "pyspark.sql.streaming.transform_with_state_driver_worker"


class KernelProcessor(StatefulProcessor):
    """Hands what Spark calls for to the kernel's host."""

    def __init__(self, work: Work, operator: str, plan: str) -> None:
        self._packed = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
        self._operator = operator
        self._plan = plan
        self._host: HostedKernel | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _keep_quiet(sys.modules["__main__"])

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._pages = handle.getMapState("pages", _NAME, _PAGE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        return self._opened().on_rows(key[0], rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        return self._opened().on_timer(key[0], timerValues, expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        if self._host is not None:
            self._host.close()

    def _opened(self) -> HostedKernel:
        if self._host is None:
            from tidegate.spark.host import HostedKernel

            work = pickle.loads(self._packed)
            self._host = HostedKernel(work, self._operator, self._plan, self._handle, self._pages)
        return self._host


class PandasKernelProcessor(KernelProcessor):
    """The same where Spark hands over frames of pandas, and wants frames."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        from tidegate.spark.pandas_frames import frames_of, rows_in

        found = (row for frame in rows for row in rows_in(frame))
        return frames_of(super().handleInputRows(key, found, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        from tidegate.spark.pandas_frames import frames_of

        return frames_of(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


def _keep_quiet(program: Any) -> None:
    """Let Spark's process that asks for states not print each of its steps to the user's terminal.

    Errors go to Spark by other ways. Sessions of `local_spark` do not show its first line, either.
    """
    spec = getattr(program, "__spec__", None)
    if spec is not None and spec.name == _ASKS_FOR_STATES:
        program.print = lambda *_: None
