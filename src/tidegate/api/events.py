"""The public API: events → key_by → window → agg → emit. Each method adds one plan node.

Spark is imported only where a DataFrame is read or returned: plans alone do not need it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import stack
from itertools import takewhile
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidegate.dataflow import compile
from tidegate.dataflow.explain import render_logical, render_physical
from tidegate.errors import PlanError, TidegateWarning
from tidegate.kernels.registry import kernels_of
from tidegate.kernels.steps import filter_step, map_step
from tidegate.optimize import optimize
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import MAIN
from tidegate.plan.event_time import At
from tidegate.plan.inputs import KeyBy
from tidegate.plan.joins import How, Match, NullsMatch
from tidegate.plan.nodes import AnyOperator, Join, Plan
from tidegate.plan.pass_through import Admit, Dedupe, PassThrough, Reorder, SparkRule
from tidegate.plan.policies import (
    Drop,
    Emission,
    LatePolicy,
    OnWatermark,
    OnWindowClose,
    Retracting,
)
from tidegate.plan.schema import shortened
from tidegate.plan.sla import Sla
from tidegate.plan.sources import Derived, Node, Source, Stepped, Time, Union, Upstream, declare_source
from tidegate.plan.steps import Frames, Fusion, Policy, Shed
from tidegate.plan.time import Duration, ProcessingTime, micros
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate
from tidegate.plan.windows import AllTime, Window

if TYPE_CHECKING:
    from tidegate.connectors import Sink
    from tidegate.spark.query import Query
    from tidegate.spark.rate_control import Pace
    from tidegate.spark.schema import DataFrame


DROP = Drop()

#: Where our own frames of a stack are.
_PACKAGE = str(Path(__file__).parent.parent)


def events(
    df: DataFrame,
    *,
    time: Time,
    time_type: str | None = None,
    tolerance: Duration = "0 s",
    max_future: Duration | None = None,
    idle_after: Duration | None = None,
) -> Events:
    """Rows with an event time, which may be out of order by up to `tolerance`.

    `df` is a streaming or a batch DataFrame. `time` is one of:

    - a column, read as `time_type` (see `tg.event_time_types`)
    - for rows that carry messages in struct columns, the time column of each message, such as
      `{"order": "created", "click": tg.at("ms", "unixtimestamp_ms")}`; the first message that is not
      null decides
    - `tg.processing_time()`

    The watermark is the highest event time seen so far minus the tolerance. A row without a usable
    event time goes to the `errors` channel. So does a row that is more than `max_future` ahead of the
    clock (default: a hundred years). A source that has been idle for longer than `idle_after` does not
    delay the other sources of a union or a join.

    >>> import tidegate as tg
    >>> clicks = tg.events(clicks_df, time="ts", tolerance="5 seconds")
    """
    if not hasattr(df, "isStreaming"):
        raise PlanError(f"events() takes a Spark DataFrame, got {type(df).__name__}")
    from tidegate.spark.schema import arrow_schema
    from tidegate.spark.sources.folder import as_read

    source = declare_source(
        arrow_schema(df),
        time,
        time_type,
        tolerance=tolerance,
        max_future=max_future,
        idle_after=idle_after,
    )
    return Events((df,), replace(source, packs=as_read(df) is not None))


def processing_time(tick: Duration = "1 second") -> ProcessingTime:
    """The event time of a row is the time of its micro-batch; a replay uses the same time.

    Without rows, time advances in steps of `tick`, so that windows close.

    >>> print(tg.processing_time())
    processing_time(tick=1 second)
    """
    return ProcessingTime(micros(tick, "processing_time(tick)"))


def at(column: str, type: str = "timestamp") -> At:
    """The column that holds the event time of a message, and its type.

    >>> tg.at("ms", "unixtimestamp_ms")
    At(column='ms', type='unixtimestamp_ms')
    """
    return At(column, type)


class Shown(Protocol):
    """A part of a program."""

    @property
    def node(self) -> Node: ...


def shown(of: Shown, told: str | None = None) -> str:
    """The text that notebooks and messages show: the last operator and the columns."""
    names = shortened(of.node.schema.names)
    return f"<{type(of).__name__} {told or of.node.label()}: {names}>"


class Stream:
    """Operations on rows with an event time."""

    frames: tuple[DataFrame, ...]

    @property
    def upstream(self) -> Upstream:
        """The plan of these rows."""
        raise NotImplementedError

    def union(self, *others: Stream) -> Events:
        """Combine the rows of several sources. The lowest of their watermarks counts.

        >>> web = tg.events(clicks_df, time="ts", tolerance="5 seconds")
        >>> phones = tg.events(clicks_df, time="ts", tolerance="1 minute", idle_after="10 minutes")
        >>> web.union(phones).key_by("user").agg(clicks=tg.count()).channels
        ('main', 'errors')
        """
        together = (self, *others)
        sources = [source for one in together for source in _sources(one)]
        frames = of_one_kind(*(frame for one in together for frame in one.frames), what="union()")
        return Events(frames, Union(tuple(sources)))

    def key_by(self, *columns: str) -> KeyedEvents:
        """Group rows by columns: each combination of values has its own windows. Null is a value.

        >>> visits = tg.events(clicks_df, time="ts").key_by("user").window(tg.session("30 minutes"))
        """
        return KeyedEvents(self.frames, KeyBy(self.upstream, columns))

    def window(
        self, window: Window, *, allowed_lateness: Duration = "0 s", late: LatePolicy = DROP
    ) -> WindowedEvents:
        """Assign all rows to windows, without a key.

        >>> minutes = tg.events(clicks_df, time="ts").window(tg.tumbling("1 minute"))
        """
        return self.key_by().window(window, allowed_lateness=allowed_lateness, late=late)

    def reorder(self, *, late: LatePolicy = DROP) -> Rows:
        """Emit all rows in order of event time, then arrival, once the watermark has passed them.

        >>> tg.events(clicks_df, time="ts", tolerance="5 seconds").reorder().explain()
        == Logical plan ==
        Reorder[late=drop]
          KeyBy[global]
            Events[time=ts, tolerance=5 seconds, columns=(ts, user, price)]
        == Physical plan ==
        Reorder[global, late=drop]
          EventTimeWatermark[ts, tolerance=5 seconds]
        """
        return self.key_by().reorder(late=late)

    def agg(self, **aggregates: Aggregate) -> Result:
        """Running folds over all rows, without a key.

        >>> total = tg.events(clicks_df, time="ts").agg(clicks=tg.count(), spend=tg.sum("price"))
        """
        return self.key_by().agg(**aggregates)

    def dedupe(
        self,
        *,
        on: str | Sequence[str],
        within: Duration | None = None,
        late: LatePolicy = DROP,
        rule: SparkRule | None = None,
    ) -> ForwardedEvents:
        """Keep the first row of each id; count the others as `duplicates_filtered`.

        `on` names the columns of the id. An id is remembered until the watermark has passed the row's
        event time by `within`. A row that is older than that, and whose id is not known, is late.
        The rows are forwarded as events under the same watermark; you can also write them to a sink.

        Instead of `within`, `rule` takes Spark's rules by name, under which a row at or below the
        watermark is late: `"drop_duplicates"`, which needs the event time among the columns, and
        `"drop_duplicates_within_watermark"`, which remembers ids for the tolerance.

        >>> import tidegate as tg
        >>> clicks = tg.events(clicks_df, time="ts").dedupe(on=["user", "ts"], within="1 hour")
        >>> spend = clicks.key_by("user").agg(spend=tg.sum("price"))
        """
        keyed = KeyBy(self.upstream, (on,) if isinstance(on, str) else tuple(on))
        if (within is None) == (rule is None):
            raise PlanError(
                "dedupe() needs either within=…, how long ids are remembered, or rule=…, one of Spark's"
            )
        if rule is not None:
            return ForwardedEvents(self.frames, Dedupe.by_rule(keyed, rule, _policy(late)))
        assert within is not None
        return ForwardedEvents(self.frames, Dedupe(keyed, micros(within, "within"), _policy(late)))

    def admit(self, sla: Sla, *, stream: str | Sequence[str] = ()) -> ForwardedEvents:
        """Admit the rows that the limits of `tg.sla(…)` allow; others go to the channel `rejected`.

        `stream` names one or more columns. Each combination of their values is a stream with its own
        limits. Without it, all rows are one stream.

        >>> import tidegate as tg
        >>> clicks = tg.events(clicks_df, time="ts")
        >>> clicks.admit(tg.sla("gold", max_lag="1 hour", arrival="ts"), stream="user").channels
        ('main', 'errors', 'rejected')
        """
        if not isinstance(sla, Sla):
            raise PlanError(f"admit() takes tg.sla(…), got {sla!r}")
        if sla.arrival is None and not all(frame.isStreaming for frame in self.frames):
            raise PlanError(
                "admit() of a batch DataFrame: its rows do not arrive; name the column that says when "
                "they did, as in tg.sla('gold', arrival='received_at')"
            )
        columns = (stream,) if isinstance(stream, str) else tuple(stream)
        return ForwardedEvents(self.frames, Admit(KeyBy(self.upstream, columns), sla))

    def map(self, function: Callable[[Any], Any], *, frames: Frames = "polars") -> Events:
        """Transform rows with a function, many at a time.

        The function takes a `polars.DataFrame`, or with `frames="arrow"` a `pyarrow.Table`. It returns
        one with the same number of rows in the same order. It must not change the event time. To find
        out its columns, tidegate calls the function once with no rows.

        >>> import polars as pl, tidegate as tg
        >>> def in_cents(rows):
        ...     return rows.with_columns(cents=(pl.col("price") * 100).cast(pl.Int64))
        >>> cents = tg.events(clicks_df, time="ts").map(in_cents).key_by("user").agg(sum=tg.sum("cents"))
        >>> cents.to_df().select("user", "sum").orderBy("user").show()
        +----+----+
        |user| sum|
        +----+----+
        | ann|1250|
        | bob| 300|
        +----+----+
        <BLANKLINE>
        """
        step = map_step(function, frames, self.upstream.schema, self.upstream.time)
        return Events(self.frames, Stepped(self.upstream, (step,)))

    def filter(self, function: Callable[[Any], Any], *, frames: Frames = "polars") -> Events:
        """Keep the rows for which a function returns true; it is called with many rows at a time.

        It returns a boolean for each row: a `polars.Series`, or a `pyarrow` array.

        >>> import tidegate as tg
        >>> clicks = tg.events(clicks_df, time="ts").filter(lambda rows: rows["price"] > 2)
        """
        step = filter_step(function, frames, self.upstream.schema)
        return Events(self.frames, Stepped(self.upstream, (step,)))

    def shed(self, policy: Policy = "strict", *, priority: str | None = None) -> Events:
        """Shed rows under overload: some rows go to the channel `shed`.

        `priority` is a column with `low`, `medium`, `high` or `critical`. Rows with a higher priority
        are shed less often, and critical rows never. With the policy `prefer_throttle` no row is shed;
        a source with a pace is asked for fewer rows instead. With `bypass` the load is ignored.

        >>> import tidegate as tg
        >>> tg.events(clicks_df, time="ts").shed().key_by("user").agg(n=tg.count()).channels
        ('main', 'errors', 'shed')
        """
        step = Shed(policy, priority, self.upstream.schema)
        return Events(self.frames, Stepped(self.upstream, (step,)))


@dataclass(frozen=True)
class Events(Stream):
    """Rows with an event time."""

    frames: tuple[DataFrame, ...]
    node: Upstream

    def __repr__(self) -> str:
        return shown(self, None if self.node.children else f"by {self.node.time}")

    @property
    def upstream(self) -> Upstream:
        return self.node


def of_one_kind(*frames: DataFrame, what: str) -> tuple[DataFrame, ...]:
    if len({frame.isStreaming for frame in frames}) > 1:
        raise PlanError(f"{what} of streaming and batch events: one of them would never end")
    return frames


def _sources(events: Stream) -> tuple[Source, ...]:
    upstream = events.upstream
    if upstream.steps_taken or upstream.operator is not None:
        raise PlanError(
            "union() takes events of sources; results of operators, and rows after steps, cannot be "
            "united: unite the sources first"
        )
    return upstream.sources


@dataclass(frozen=True)
class KeyedEvents:
    """Events with a key."""

    frames: tuple[DataFrame, ...]
    node: KeyBy

    def __repr__(self) -> str:
        return shown(self)

    def window(
        self, window: Window, *, allowed_lateness: Duration = "0 s", late: LatePolicy = DROP
    ) -> WindowedEvents:
        """Assign rows to windows. A window stays open for `allowed_lateness` after its end.

        >>> clicks = tg.events(clicks_df, time="ts").key_by("user")
        >>> minutes = clicks.window(
        ...     tg.tumbling("1 minute"), allowed_lateness="30 seconds", late=tg.late.side_output("late")
        ... )
        >>> minutes.agg(clicks=tg.count()).channels
        ('main', 'errors', 'late')
        """
        if not isinstance(window, Window):
            raise PlanError(
                "window() takes tg.tumbling(…), tg.hopping(…), tg.session(…) or tg.sliding(…), "
                f"got {window!r}"
            )
        lateness = micros(allowed_lateness, "allowed_lateness", zero=True)
        node = WindowBy(self.node, window, lateness, _policy(late))
        _warn_of_ties(node, self.frames)
        return WindowedEvents(self.frames, node)

    def reorder(self, *, late: LatePolicy = DROP) -> Rows:
        """Emit the rows of each key in order of event time, then arrival.

        >>> in_order = tg.events(clicks_df, time="ts", tolerance="5 seconds").key_by("user").reorder()
        """
        node = Reorder(self.node, _policy(late))
        _warn_of_ties(node, self.frames)
        return Rows(self.frames, node)

    def agg(self, **aggregates: Aggregate) -> Result:
        """Running folds: named aggregates over all rows of each key, without a window.

        A fold never ends, so it emits changes: with `tg.emit.on_update()`, unless `emit` sets another.

        >>> import tidegate as tg
        >>> totals = tg.events(clicks_df, time="ts").key_by("user").agg(spend=tg.sum("price"))
        >>> totals.to_df().orderBy("user").show()
        +----+-----+---+
        |user|spend| op|
        +----+-----+---+
        | ann| 12.5| +I|
        | bob|  3.0| +I|
        +----+-----+---+
        <BLANKLINE>
        """
        aggregation = Aggregation(WindowBy(self.node, AllTime()), tuple(aggregates.items()))
        return Result(self.frames, aggregation, Retracting())


def _warn_of_ties(node: WindowBy | Reorder, frames: tuple[DataFrame, ...]) -> None:
    """Warn on the line that adds the operator. In a batch no row is late, so there is no warning."""
    warning = node.tie_warning if any(frame.isStreaming for frame in frames) else None
    if warning is not None:
        ours = takewhile(lambda frame: frame.filename.startswith(_PACKAGE), stack(context=0))
        warnings.warn(warning, TidegateWarning, stacklevel=1 + len(list(ours)))


def _policy(late: LatePolicy) -> LatePolicy:
    if not isinstance(late, LatePolicy):
        raise PlanError(f"late= takes tg.late.drop(), reassign(…) or side_output(…), got {late!r}")
    return late


def _nulls_match(given: bool | Sequence[bool], keys: int) -> NullsMatch:
    """A flag for each key, or None where null always equals null."""
    if isinstance(given, bool):
        return None if given else (False,) * keys
    return tuple(given) if isinstance(given, list) else cast("NullsMatch", given)  # a plan checks it


@dataclass(frozen=True)
class WindowedEvents:
    """Events assigned to windows."""

    frames: tuple[DataFrame, ...]
    node: WindowBy

    def __repr__(self) -> str:
        return shown(self)

    def agg(self, **aggregates: Aggregate) -> Result:
        """Named aggregates over each window, such as `clicks=tg.count(), spend=tg.sum("price")`.

        >>> minutes = tg.events(clicks_df, time="ts").key_by("user").window(tg.tumbling("1 minute"))
        >>> spend = minutes.agg(clicks=tg.count(), spend=tg.sum("price"))
        """
        return Result(self.frames, Aggregation(self.node, tuple(aggregates.items())))

    def join(
        self,
        other: WindowedEvents,
        *,
        how: How = "inner",
        match: Match = "overlap",
        where: str | None = None,
        nulls_match: bool | Sequence[bool] = True,
    ) -> Rows:
        """Join two windowed streams: pairs of rows with equal keys and overlapping windows.

        Tumbling windows join with tumbling or hopping windows, sessions with sessions. With
        `match="within"`, the row of the hopping side must itself lie in the tumbling window. `where` is
        an extra condition, in SQL over the columns of a pair. With `how="left"`, `"right"` or `"full"`,
        unmatched rows are emitted too, once nothing can match them any more. Null keys equal each other;
        with `nulls_match=False` they match nothing, as in SQL. A sequence has one flag per key.

        >>> import tidegate as tg
        >>> shown = tg.events(clicks_df, time="ts").key_by("user").window(tg.tumbling("10 s"))
        >>> clicked = tg.events(clicks_df, time="ts").key_by("user").window(tg.hopping("30 s", "10 s"))
        >>> shown.join(clicked, where="price_left > price_right").channels
        ('main', 'errors')
        """
        if not isinstance(other, WindowedEvents):
            raise PlanError(f"join() takes events with windows, such as events.window(…), got {other!r}")
        frames = of_one_kind(*self.frames, *other.frames, what="join()")
        flags = _nulls_match(nulls_match, len(self.node.input.keys))
        plan = Join(self.node, other.node, how, match, where, flags)
        compile(plan)  # refuses channels that both sides cannot share, on the line of the join
        return Rows(frames, plan)


class Startable:
    """A program that can be explained and started."""

    frames: tuple[DataFrame, ...]

    @property
    def node(self) -> Plan:
        """The whole plan."""
        raise NotImplementedError

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the output channels."""
        return tuple(compile(self.node).channels)

    def explain(self, *, fusion: Fusion | None = None) -> None:
        """Print the logical and the physical plan.

        >>> import tidegate as tg
        >>> hourly = tg.events(clicks_df, time="ts").window(tg.tumbling("1 hour")).agg(n=tg.count())
        >>> hourly.explain()
        == Logical plan ==
        Emit[on_watermark]
          Aggregate[n=count(*)]
            Window[tumbling(1 hour), allowed_lateness=0 seconds, late=drop]
              KeyBy[global]
                Events[time=ts, tolerance=0 seconds, columns=(ts)]
        == Physical plan ==
        WindowEmit[on_watermark]
          SliceMerge[by slice, late=drop]
            SlicePreAggregate[global]
              EventTimeWatermark[ts, tolerance=0 seconds]
        """
        print(self.plan_text(fusion))

    def plan_text(self, fusion: Fusion | None = None) -> str:
        """The text that `explain()` prints."""
        plan = optimize(self.node, fusion)
        dataflow = compile(plan)
        physical = render_physical(
            dataflow, [kernel.physical_operators() for kernel in kernels_of(dataflow)]
        )
        return f"== Logical plan ==\n{render_logical(plan)}\n== Physical plan ==\n{physical}"

    def start(  # noqa: PLR0913
        self,
        *,
        checkpoint: str | PathLike[str],
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        buckets: int | None = None,
        pace: Pace | None = None,
        fusion: Fusion | None = None,
        sinks: Mapping[str, Sink] | None = None,
        **channels: Sink,
    ) -> Query:
        """Start a query with a sink for each channel: `main=`, `errors=`, and one for late rows.

        `sinks` takes sinks by channel name, whatever the name is: `sinks={"main": …, "late rows": …}`.
        Give each channel one sink, in one of the two ways. `trigger` takes the arguments of Spark's
        `writeStream.trigger`, such as `{"availableNow": True}`. With a `pace`, the metrics show how many
        rows batches should have; a folder that `tg.read_folder` reads with a pace needs none here.
        `fusion` sets which steps share a Python stage.
        """
        from tidegate.spark import query
        from tidegate.spark.start_options import StartOptions, sinks_by_channel

        given = sinks_by_channel(sinks, channels)
        options = StartOptions(fspath(checkpoint), given, trigger, name, buckets, pace, fusion)
        return query.start(self.node, self.frames, options)


class Runnable(Startable):
    """The end of a plan: return a DataFrame, start a query, or use the results as events."""

    @property
    def node(self) -> AnyOperator:
        raise NotImplementedError

    def events(self, *, time: str) -> Events:
        """Use the results as events of another operator in the same query.

        The time of window results is `window_end` or `window_start`; rows keep their event time.

        >>> import tidegate as tg
        >>> minutes = tg.events(clicks_df, time="ts").window(tg.tumbling("1 minute")).agg(n=tg.count())
        >>> hourly = minutes.events(time="window_end").window(tg.tumbling("1 hour"))
        >>> busiest = hourly.agg(most=tg.max("n"))
        """
        return Events(self.frames, Derived(self.node, time))

    def to_df(
        self, *, channel: str = MAIN, buckets: int | None = None, fusion: Fusion | None = None
    ) -> DataFrame:
        """Return the results as a DataFrame, for any Spark writer (output mode `append`).

        Of a batch DataFrame, `channel` also gives the other channels: `"errors"` has the invalid rows,
        which the results leave out. Each is computed by itself. Of a stream there is only `"main"`: late
        rows and errors are counted in Spark's progress, and only `start()` can write them.

        >>> import tidegate as tg
        >>> clicks = tg.events(clicks_df, time="ts").key_by("user")
        >>> totals = clicks.window(tg.tumbling("1 minute")).agg(spend=tg.sum("price")).to_df()
        >>> totals.select("user", "spend").orderBy("user").show()
        +----+-----+
        |user|spend|
        +----+-----+
        | ann| 12.5|
        | bob|  3.0|
        +----+-----+
        <BLANKLINE>
        """
        from tidegate.spark import lower

        return lower.to_df(self.node, self.frames, channel, buckets=buckets, fusion=fusion)


@dataclass(frozen=True)
class Result(Runnable):
    """Results of windows, or of running folds."""

    frames: tuple[DataFrame, ...]
    aggregation: Aggregation
    emission: Emission = OnWatermark()

    def __repr__(self) -> str:
        return shown(self)

    @property
    def node(self) -> WindowedAggregate:
        """The whole plan. It refuses a strategy that does not fit the windows."""
        return WindowedAggregate(self.aggregation, self.emission)

    def emit(self, emission: Emission) -> Result:
        """Set when results are emitted, and in which form.

        The default is `tg.emit.on_watermark()`; for running folds, `tg.emit.on_update()`.

        >>> totals = tg.events(clicks_df, time="ts").key_by("user").agg(spend=tg.sum("price"))
        >>> changes = totals.emit(tg.emit.changelog())
        """
        if not isinstance(emission, OnWatermark | OnWindowClose | Retracting):
            raise PlanError(f"emit() takes a strategy of tg.emit, got {emission!r}")
        plan = WindowedAggregate(
            self.aggregation, emission
        )  # refuses a wrong strategy, on the line that sets it
        return Result(self.frames, plan.input, plan.emission)


@dataclass(frozen=True)
class Rows(Runnable):
    """Rows of `reorder`, or pairs of a join."""

    frames: tuple[DataFrame, ...]
    plan: Reorder | Join

    def __repr__(self) -> str:
        return shown(self)

    @property
    def node(self) -> Reorder | Join:
        return self.plan


@dataclass(frozen=True)
class ForwardedEvents(Stream, Runnable):
    """Events that an operator forwards: the input of more operators, or rows for a sink."""

    frames: tuple[DataFrame, ...]
    plan: PassThrough

    def __repr__(self) -> str:
        return shown(self)

    @property
    def node(self) -> PassThrough:
        return self.plan

    @property
    def upstream(self) -> Upstream:
        return Derived(self.plan, self.plan.upstream.time)
