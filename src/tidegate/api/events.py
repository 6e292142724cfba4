"""The public way to a plan: events → key_by → window → agg → emit. Each step adds one plan node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from tidegate.connectors import Sink
from tidegate.errors import PlanError
from tidegate.operators.kernels import kernel_of
from tidegate.optimize import optimize
from tidegate.plan.aggregate import Aggregate
from tidegate.plan.explain import render_logical, render_stages
from tidegate.plan.nodes import Aggregation, Emit, KeyBy, Source, WindowBy
from tidegate.plan.policies import (
    Drop,
    Emission,
    LatePolicy,
    OnWatermark,
    OnWindowClose,
    Retracting,
)
from tidegate.plan.time import Duration, micros, render
from tidegate.plan.windows import Window
from tidegate.spark import lower, query
from tidegate.spark.schema import arrow_schema

if TYPE_CHECKING:
    from tidegate.spark.schema import DataFrame


DROP = Drop()


def events(df: DataFrame, *, time: str, tolerance: Duration = "0 s") -> Events:
    """Rows with an event time: the column `time`, which may come out of order by `tolerance`.

    `df` is a streaming or a batch DataFrame. The watermark is the highest event time seen minus the
    tolerance. A row without an event time goes to the `errors` channel.

    >>> import tidegate as tg
    >>> clicks = tg.events(clicks_df, time="ts", tolerance="5 seconds")
    """
    if not hasattr(df, "isStreaming"):
        raise PlanError(f"events() takes a Spark DataFrame, got {type(df).__name__}")
    return Events(df, Source(arrow_schema(df), time, micros(tolerance, "tolerance", zero=True)))


@dataclass(frozen=True)
class Events:
    """Rows with an event time."""

    df: DataFrame
    node: Source

    def key_by(self, *columns: str) -> KeyedEvents:
        """Windows of their own for each combination of values; null is a value like any other."""
        return KeyedEvents(self.df, KeyBy(self.node, columns))

    def window(
        self, window: Window, *, allowed_lateness: Duration = "0 s", late: LatePolicy = DROP
    ) -> WindowedEvents:
        """Windows over all rows together."""
        return self.key_by().window(window, allowed_lateness=allowed_lateness, late=late)


@dataclass(frozen=True)
class KeyedEvents:
    """Events with a key."""

    df: DataFrame
    node: KeyBy

    def window(
        self, window: Window, *, allowed_lateness: Duration = "0 s", late: LatePolicy = DROP
    ) -> WindowedEvents:
        """Assign rows to windows; they stay open for `allowed_lateness` after their end."""
        if not isinstance(window, Window):
            raise PlanError(
                f"window() takes tg.tumbling(…), tg.hopping(…) or tg.session(…), got {window!r}"
            )
        if not isinstance(late, LatePolicy):
            raise PlanError(f"late= takes tg.late.drop(), reassign(…) or side_output(…), got {late!r}")
        lateness = micros(allowed_lateness, "allowed_lateness", zero=True)
        return WindowedEvents(self.df, WindowBy(self.node, window, lateness, late))


@dataclass(frozen=True)
class WindowedEvents:
    """Events assigned to windows."""

    df: DataFrame
    node: WindowBy

    def agg(self, **aggregates: Aggregate) -> Result:
        """Named aggregates over each window, such as `clicks=tg.count(), spend=tg.sum("price")`."""
        return Result(self.df, Aggregation(self.node, tuple(aggregates.items())))


@dataclass(frozen=True)
class Result:
    """Results of windows: look at the plan, take a DataFrame, or start a query."""

    df: DataFrame
    aggregation: Aggregation
    emission: Emission = OnWatermark()

    @property
    def node(self) -> Emit:
        """The whole plan; here a strategy is refused that does not fit the windows."""
        return Emit(self.aggregation, self.emission)

    def emit(self, emission: Emission) -> Result:
        """When results leave, and in which form; without it, `tg.emit.on_watermark()`."""
        if not isinstance(emission, OnWatermark | OnWindowClose | Retracting):
            raise PlanError(f"emit() takes a strategy of tg.emit, got {emission!r}")
        plan = Emit(self.aggregation, emission)  # refused here, where the strategy is given
        return Result(self.df, plan.input, plan.emission)

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the channels rows can leave through."""
        return tuple(self.node.channels)

    def explain(self) -> None:
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
        print(self.plan_text())

    def plan_text(self) -> str:
        """What `explain()` prints."""
        plan = optimize(self.node)
        source = plan.input.input.input.input
        watermark = f"EventTimeWatermark[{source.time}, tolerance={render(source.tolerance)}]"
        physical = render_stages([watermark, *kernel_of(plan).stages()])
        return f"== Logical plan ==\n{render_logical(plan)}\n== Physical plan ==\n{physical}"

    def to_df(self, *, buckets: int | None = None) -> DataFrame:
        """The main channel as a DataFrame, for any Spark writer (output mode `append`).

        Late rows and errors are counted in Spark's progress, but only `start()` can write them.

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
        return lower.to_df(self.node, self.df, buckets)

    def start(
        self,
        *,
        checkpoint: str | PathLike[str],
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        buckets: int | None = None,
        **sinks: Sink,
    ) -> query.Query:
        """Start a query with a sink for each channel: `main=`, `errors=` and the late rows' own.

        `trigger` is what Spark's `writeStream.trigger` takes, such as `{"availableNow": True}`.
        """
        return query.start(
            self.node,
            self.df,
            fspath(checkpoint),
            sinks,
            trigger=trigger,
            name=name,
            buckets=buckets,
        )
