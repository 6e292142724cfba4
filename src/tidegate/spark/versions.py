"""What differs between the versions of Spark that tidegate runs on. No other module knows of it.

A capability is looked for where it is when it is there: versions are named in messages, and never
compared.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

from tidegate.errors import PlanError, SessionError, TidegateError


@dataclass(frozen=True)
class Capability:
    """Something that not every version of Spark has."""

    #: The first version that has it.
    since: str
    here: bool

    def require(self, what: str, instead: str, error: type[TidegateError] = PlanError) -> None:
        """Refuse what needs it where it is missing, and say which version has it and what to do here."""
        if not self.here:
            raise error(
                f"{what} needs Spark {self.since} or newer, and this is Spark {pyspark.__version__}: "
                f"{instead}"
            )


#: Sources in Python are told where a batch starts and how much it may have, and what is available now.
ADMISSION_CONTROL = Capability("4.2", find_spec("pyspark.sql.streaming.datasource") is not None)

#: Stateful processors are given rows. Without it they are given frames of pandas.
STATEFUL_ROWS = Capability("4.1", hasattr(GroupedData, "transformWithState"))

#: Clients of Spark Connect have stateful processors. It came with stateful rows.
STATE_OVER_CONNECT = Capability("4.1", STATEFUL_ROWS.here)

#: Spark's reader of stored state, which draining needs, reads state of format 2. Nothing in Python
#: tells; it came with stateful rows.
STATE_FORMAT_2 = Capability("4.1", STATEFUL_ROWS.here)

#: A batch that a function writes over Connect has the settings of its query. Without it, it has those of
#: the session: tasks keep state in the session's format, and the query in its own. Nothing in Python
#: tells that either; it came with a new way for workers to read.
BATCH_SETTINGS_OVER_CONNECT = Capability("4.3", find_spec("pyspark.worker_message") is not None)

#: The format of state in new checkpoints.
STATE_FORMAT = 2 if STATE_FORMAT_2.here else 1

#: What sessions are set to. Without admission control Spark takes `availableNow` for `once`, which
#: leaves out the batches without rows that close windows. What it has instead does not suit all sources;
#: it suits those that read the same rows again between the same offsets, as ours do.
SETTINGS: dict[str, str] = (
    {} if ADMISSION_CONTROL.here else {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}
)


# -- types ----------------------------------------------------------------------------------------

#: Instants are in UTC, by an argument or by default.
_TAKES_ZONE = "timezone" in signature(to_arrow_type).parameters
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if _TAKES_ZONE else {}


def arrow_type(kind: DataType) -> pa.DataType:
    """A type in Arrow's words; raises Spark's own error for one that Arrow does not have."""
    return to_arrow_type(kind, **_IN_UTC)


def struct_type(schema: pa.Schema) -> StructType:
    """A schema in Spark's words. Times without a zone stay so, whatever the default."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


# -- state ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateApi:
    """A method that runs a stateful processor over grouped rows."""

    method: str
    #: What Spark calls the operator in a checkpoint, which keeps the one that it was begun with.
    operator: str
    #: Is a processor given frames of pandas, and not rows?
    in_pandas: bool

    def run(self, rows: DataFrame, key: str, processor: Any, schema: StructType) -> DataFrame:
        grouped = rows.groupBy(key)
        if not hasattr(grouped, self.method):
            STATE_OVER_CONNECT.require("state over Spark Connect", "use a classic session", SessionError)
        run: Any = getattr(grouped, self.method)
        return run(processor, schema, "Append", "EventTime")


_OF_ROWS = StateApi("transformWithState", "transformWithStateInPySparkExec", in_pandas=False)
_OF_FRAMES = StateApi("transformWithStateInPandas", "transformWithStateInPandasExec", in_pandas=True)


def state_api(stored: str | None = None) -> StateApi:
    """What a query keeps state with: as its checkpoint has it, or else the fastest there is."""
    if stored == _OF_FRAMES.operator or not STATEFUL_ROWS.here:
        return _OF_FRAMES
    return _OF_ROWS


def coordinate_state(spark: SparkSession) -> None:
    """Let Spark start what tasks that read state ask; on some versions only queries do that."""
    _ = spark.streams.active


# -- sources --------------------------------------------------------------------------------------


class _OffsetReader(DataSourceStreamReader):
    """A source in Python, as our own sources are written: where Spark tells less, they are told less."""

    @property
    def limited(self) -> bool:
        """May a batch have less than everything there is?"""
        return False

    @abstractmethod
    def next_offset(self, start: dict[str, Any] | None, *, everything: bool) -> dict[str, Any]:
        """Where the batch ends that starts there. Without a start, wherever it starts."""

    def stand_still(self) -> None:
        """What comes from now on is not available now."""


if ADMISSION_CONTROL.here:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class OffsetReader(_OffsetReader, SupportsTriggerAvailableNow):
        """Asks the source for offsets, as Spark asks for them."""

        def getDefaultReadLimit(self) -> ReadLimit:
            # How much it is, the source knows; Spark hands it back, or asks for everything.
            return ReadMaxRows(sys.maxsize) if self.limited else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            self.stand_still()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            return self.next_offset(start, everything=isinstance(limit, ReadAllAvailable))

else:

    class OffsetReader(_OffsetReader):  # type: ignore[no-redef]
        """Asks the source for offsets, as Spark asks for them: without a start, and without a limit."""

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
            return self.next_offset(None, everything=True)
