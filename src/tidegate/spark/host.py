"""A kernel in a worker of Spark: one host for every kernel, and it knows of none of them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessorHandle

from tidegate.kernels import state_size as contents
from tidegate.kernels.contract import Clock, Kernel
from tidegate.kernels.messages import Message, in_order
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.delivery import Delivery
from tidegate.state.pages import RESIDENT, BucketState, state_of

_ROW = Row(*Message._fields)


class MapStatePages:
    """A bucket's pages in a Spark MapState, as text: Spark hands bytes to Python far slower."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def has(self, name: str) -> bool:
        return bool(self._state.containsKey((name,)))

    def get(self, name: str) -> bytes | None:
        # Asked for a key that is not there, Spark writes a warning that reads like lost state.
        found = self._state.getValue((name,))
        return None if found is None else base64.b64decode(found[0])

    def put(self, name: str, page: bytes) -> None:
        self._state.updateValue((name,), (base64.b64encode(page).decode("ascii"),))

    def remove(self, name: str) -> None:
        self._state.removeKey((name,))


@dataclass(frozen=True)
class Work:
    """What a task needs besides Spark: the kernel, and what tells whose state it works on."""

    kernel: Kernel
    #: The number of the operator.
    vertex: int = 0
    #: What a user would call the operator.
    title: str = "the operator"
    #: None for `to_df()`, which does not know its checkpoint.
    ownership: Ownership | None = None
    #: Which channels are written here.
    delivery: Delivery = field(default_factory=Delivery)


class HostedKernel:
    """Loads a bucket's state, lets the kernel step, stores the state, sets one timer."""

    def __init__(
        self, work: Work, operator: str, plan: str, handle: StatefulProcessorHandle, pages: Any
    ) -> None:
        self._kernel = work.kernel
        self._vertex = work.vertex
        self._title = work.title
        self._ownership = work.ownership
        self._delivery = work.delivery
        self._operator = operator
        self._plan = plan
        self._handle = handle
        self._pages = MapStatePages(pages)

    def on_rows(self, bucket: int, rows: Iterator[Row], times: Any) -> Iterator[Row]:
        own = []
        for row in rows:
            message = Message(*row)
            if message.is_for(self._vertex):
                own.append(message)
            else:
                yield row  # not ours: a side output or a counter of an earlier stage passes through
        if own:
            yield from self._step(bucket, in_order(own), times)

    def on_timer(self, bucket: int, times: Any, fired: int) -> Iterator[Row]:
        yield from self._step(bucket, [], times, fired)

    def close(self) -> None:
        """The last word before Spark commits the state: an error here keeps it from that."""
        self._check_ownership()
        RESIDENT.trim()

    def _check_ownership(self) -> None:
        if self._ownership is None:
            return
        # Where the checkpoint is out of Python's reach, it is left to the driver, which looks as well.
        with suppress(OSError, pa.ArrowException):
            self._ownership.check()

    def _step(
        self, bucket: int, inputs: list[Message], times: Any, fired: int | None = None
    ) -> Iterable[Row]:
        resident = RESIDENT.get(self._operator, bucket)
        with state_of(self._title, bucket):
            state = BucketState(self._pages, self._plan, resident)
            outcome = self._kernel.step(state, inputs, _clock(times))
        self._set_timer(state, outcome.due, fired)
        state.commit()
        for message in outcome.messages(bucket, self._vertex, self._delivery.packed):
            yield message_row(message)
        yield message_row(Message.state(bucket, self._vertex, contents.kept(self._kernel, state)))

    def _set_timer(self, state: BucketState, due: int | None, fired: int | None) -> None:
        """One timer a bucket: replace it when the bucket's next due time has moved."""
        wanted = None if due is None else max(1, -(-due // 1000))  # Spark's time begins in 1970
        registered = state.manifest.timer
        if registered == wanted:
            return
        if registered is not None and registered != fired:  # Spark deletes one that fired itself
            self._handle.deleteTimer(registered)
        if wanted is not None:
            self._handle.registerTimer(wanted)
        state.manifest.timer = wanted


def message_row(message: Message) -> Row:
    return _ROW(*message)


def _clock(times: Any) -> Clock:
    watermark = times.getCurrentWatermarkInMs()
    # Spark's zero means that no watermark is known yet.
    return Clock(
        watermark * 1000 if watermark > 0 else None, times.getCurrentProcessingTimeInMs() * 1000
    )
