"""Sources: the rows a plan reads, under their watermark, packed for the first operator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.kernels.invalid_rows import INVALID_ROW, time_is_too_far_ahead
from tidegate.kernels.routes import Route, gap_at_source, take_steps_or_part
from tidegate.plan.event_time import EVENT_TIME_TYPES, At, EventTime
from tidegate.plan.sources import MAX_FUTURE, Source
from tidegate.plan.time import ProcessingTime
from tidegate.spark.python_stages import CLOCK, PythonStages, SourceDecoder
from tidegate.spark.sources.clock import clock
from tidegate.spark.sources.event_time import event_time, quoted
from tidegate.spark.sources.folder import AsRead, as_read
from tidegate.spark.sources.invalid_rows import (
    INVALID,
    ORIGIN,
    ArrowMarks,
    carrier,
    has_origin,
    mark,
    row_json,
    with_origin,
)
from tidegate.spark.sources.packing import HIGHEST_TIME, PACKED, Packing


@dataclass(frozen=True)
class Reading:
    """The sources of a query; each has a watermark of its own, and the lowest one counts."""

    sources: Sequence[Source]
    frames: Sequence[DataFrame]
    stages: PythonStages
    progress: str | None

    def messages(self, number: int, routes: Sequence[Route]) -> DataFrame:
        """The rows of one source, packed for the operators that read it."""
        source, df = self.sources[number], with_origin(self.frames[number])
        gap = gap_at_source(routes)
        folder = as_read(df)
        if source.packed_where_read and folder is not None and not routes[0].stages:
            return self._packed_where_read(folder, number, routes, gap)
        columns = _columns(source, df, gap)
        fields = [_field(source, name) for name in columns]
        rows = df.select(*(column.alias(f"c{i}") for i, column in enumerate(columns.values())))
        if df.isStreaming:
            beats = self._beats(number)
            if beats is not None:
                rows = _with_clock(rows, beats)
                fields.append(pa.field(CLOCK, pa.bool_()))
            rows = _under_watermark(rows, "c0", source)
        apart = take_steps_or_part(routes)
        enter = SourceDecoder(number, pa.schema(fields), carrier(source), self.stages.labels, apart)
        return self.stages.pack(rows, enter, routes)

    def _packed_where_read(
        self, folder: AsRead, number: int, routes: Sequence[Route], gap: str | None
    ) -> DataFrame:
        """Spark has the messages only, and with them how far time has come."""
        source = self.sources[number]
        names = [source.time, *(name for name in source.schema.names if name != source.time)]
        columns = pa.schema([source.row_schema.field(name) for name in names])
        arriving = columns.append(_field(source, INVALID_ROW))
        enter = SourceDecoder(number, arriving, INVALID_ROW, self.stages.labels, apart=False)
        packing = Packing(
            columns=columns,
            rows=source.row_schema,
            marks=ArrowMarks(
                _latest_instant(source), time_is_too_far_ahead(source.max_future), gap, folder.zone
            ),
            pack=self.stages.packer(enter, routes),
        )
        return _under_watermark(folder.packed(packing, PACKED), HIGHEST_TIME, source).drop(HIGHEST_TIME)

    def _beats(self, number: int) -> DataFrame | None:
        """Rows of the clock that move a source's time on when it has none itself."""
        source = self.sources[number]
        if self._heartbeats is None or source.idle_after is None:
            return _ticks(source, self.frames[number].sparkSession)
        own = self._heartbeats.filter(F.col("source") == number)
        return own.select(F.col("level").alias("c0"))

    @cached_property
    def _heartbeats(self) -> DataFrame | None:
        return _heartbeats(self.sources, self.frames[0].sparkSession, self.progress)


def _columns(source: Source, df: DataFrame, gap: str | None) -> dict[str, Column]:
    """The columns the plan reads, the event time first; one of them carries the marks of invalid rows.

    A row is also invalid if it has no `gap`, where sessions have gaps of their own. Columns are numbered
    on the route: PySpark stumbles over names with dots and backticks.
    """
    time, valid, reason = _time(source, df)
    whole = row_json(F.struct("*"))
    if has_origin(df):
        # Of what was decoded from text, the text says more than the columns do.
        valid, reason = valid & df[INVALID].isNull(), F.coalesce(df[INVALID], reason)
        whole = row_json(df[ORIGIN])
    columns = {source.time: F.when(valid, time)}
    columns |= {name: df[quoted(name)] for name in source.schema.names if name != source.time}
    if gap is not None:
        valid = valid & (columns[gap] > F.lit(timedelta(0)))
    own = columns.get(carrier(source), F.lit(None))
    return columns | {carrier(source): mark(own, valid, reason, whole)}


def _field(source: Source, column: str) -> pa.Field:
    if column == INVALID_ROW:
        return pa.field(INVALID_ROW, pa.string())
    return source.row_schema.field(column)


def _time(source: Source, df: DataFrame) -> tuple[Column, Column, Column]:
    """The event time, whether it can be used, and why not (null where it can)."""
    if source.processing_time:
        return F.current_timestamp(), F.lit(True), F.lit(None).cast("string")
    time, reason = _declared_time(source, df)
    latest = _latest(source) if df.isStreaming else F.lit(_LAST_DAY)
    too_far_ahead = F.lit(time_is_too_far_ahead(source.max_future))
    return time, time <= latest, F.when(time > latest, too_far_ahead).otherwise(reason)


def _declared_time(source: Source, df: DataFrame) -> tuple[Column, Column]:
    if source.declared is None and source.row_schema.field(source.time).type.tz is not None:
        # The usual case is kept small: what Spark compiles for it, it compiles for every query.
        return df[quoted(source.time)], F.lit(None).cast("string")
    own = EventTime(((None, At(source.time)),))
    declared = source.declared if isinstance(source.declared, EventTime) else own
    return event_time(df, declared, EVENT_TIME_TYPES)


#: In a batch no watermark can run ahead, so all times count that a calendar has.
_LAST_DAY = datetime.max.replace(tzinfo=UTC)


def _latest(source: Source) -> Column:
    """The last event time that can be used.

    Spark compiles the comparison anew whenever this moves. Where it hardly matters it stays.
    """
    if source.max_future == MAX_FUTURE:
        return F.lit(_latest_instant(source))
    return F.current_timestamp() + F.lit(timedelta(microseconds=source.max_future))


def _latest_instant(source: Source) -> datetime:
    return datetime.now(UTC) + timedelta(microseconds=source.max_future)


def _ticks(source: Source, spark: SparkSession) -> DataFrame | None:
    """Rows of the clock at the time of their batch, for rows that have no other time."""
    if not isinstance(source.declared, ProcessingTime):
        return None
    ticks = clock(spark, tick=str(source.declared.tick))
    return ticks.select(F.current_timestamp().alias("c0"))


def _heartbeats(
    sources: Sequence[Source], spark: SparkSession, progress: str | None
) -> DataFrame | None:
    """Rows of the clock that take idle sources to where the others are."""
    idle = {str(n): one.idle_after for n, one in enumerate(sources) if one.idle_after is not None}
    if not idle or progress is None or len(sources) == 1:
        return None
    tolerances = [_whole_millis(one.tolerance) * 1000 for one in sources]
    return clock(spark, idle=json.dumps(idle), tolerances=json.dumps(tolerances), progress=progress)


def _under_watermark(rows: DataFrame, column: str, source: Source) -> DataFrame:
    return rows.withWatermark(column, f"{_whole_millis(source.tolerance)} milliseconds")


def _whole_millis(tolerance: int) -> int:
    """Spark counts tolerance in milliseconds: rounding up never makes a row late."""
    return -(-tolerance // 1000)


def _with_clock(rows: DataFrame, beats: DataFrame) -> DataFrame:
    others = [field for field in rows.schema if field.name != "c0"]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in others]
    mark = f"c{len(rows.columns)}"
    of_clock = beats.select("c0", *nulls, F.lit(True).alias(mark))
    return rows.withColumn(mark, F.lit(None).cast("boolean")).unionAll(of_clock)
