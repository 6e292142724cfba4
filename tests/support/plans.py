"""Plans for tests without Spark, built from plan nodes: windows, sessions, reorder, dedupe, joins."""

from collections.abc import Sequence

import pyarrow as pa

from tidegate.dataflow import compile
from tidegate.dataflow.identity import differences, fingerprint, identity_of, path_in_words
from tidegate.kernels import aggregates as a
from tidegate.optimize import optimize
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.inputs import KeyBy
from tidegate.plan.joins import How, Match
from tidegate.plan.nodes import Join, Plan
from tidegate.plan.pass_through import Dedupe, Reorder, SparkRule
from tidegate.plan.policies import Drop, Emission, LatePolicy, OnWatermark
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import Source, Upstream
from tidegate.plan.time import Micros
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate
from tidegate.plan.windows import Hopping, Session, Sliding, Window

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("user", pa.string()),
        ("shop", pa.int64()),
        ("price", pa.float64()),
        ("items", pa.int64()),
        ("note", pa.string()),
    ]
)
#: With a column that can be each row's own gap.
WITH_IDLE = SCHEMA.append(pa.field("idle", pa.duration("us")))
#: The two sides of joins; where `shop` and `note` are no keys, pairs have two of each.
LEFT_ROWS = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("user", pa.string()),
        ("shop", pa.int64()),
        ("items", pa.int64()),
        ("note", pa.string()),
    ]
)
RIGHT_ROWS = pa.schema(
    [
        ("at", TIMESTAMP),
        ("user", pa.string()),
        ("shop", pa.int64()),
        ("price", pa.float64()),
        ("note", pa.string()),
    ]
)
ROWS = (("n", a.Count(None)),)
ON_WATERMARK, DROP = OnWatermark(), Drop()


def hopping(size: int, slide: int | None = None, offset: int = 0) -> Hopping:
    """A window in microseconds; without a slide it tumbles."""
    return Hopping(Micros(size), Micros(slide or size), Micros(offset))


def session(gap: int | str, max_length: int | None = None) -> Session:
    """Sessions with one gap in microseconds, or with the column of that name."""
    return Session(gap if isinstance(gap, str) else Micros(gap), max_length and Micros(max_length))


def sliding(lookback: int, lookahead: int | None = None, when: str | None = None) -> Sliding:
    """Windows around rows, in microseconds."""
    return Sliding(Micros(lookback), None if lookahead is None else Micros(lookahead), when)


def logical_plan(
    window: Window,
    aggregates: Sequence[tuple[str, Aggregate]] = ROWS,
    *,
    keys: Sequence[str] = ("user",),
    emission: Emission = ON_WATERMARK,
    late: LatePolicy = DROP,
    lateness: int = 0,
    tolerance: int = 0,
    schema: pa.Schema = SCHEMA,
    feed: Upstream | None = None,
) -> WindowedAggregate:
    """A plan as it is written. Its rows come from a source, or from `feed`, another operator."""
    rows = feed or Source(schema, "ts", Micros(tolerance))
    windowed = WindowBy(KeyBy(rows, tuple(keys)), window, Micros(lateness), late)
    return WindowedAggregate(Aggregation(windowed, tuple(aggregates)), emission)


def plan_of(
    window: Window, aggregates: Sequence[tuple[str, Aggregate]] = ROWS, **options: object
) -> WindowedAggregate:
    """A plan as it runs: optimized."""
    return optimize(logical_plan(window, aggregates, **options))


def reorder_plan(
    *,
    keys: Sequence[str] = (),
    late: LatePolicy = DROP,
    tolerance: int = 0,
    schema: pa.Schema = SCHEMA,
    feed: Upstream | None = None,
) -> Reorder:
    """A plan that puts rows in order, as it runs."""
    rows = feed or Source(schema, "ts", Micros(tolerance))
    return optimize(Reorder(KeyBy(rows, tuple(keys)), late))


def dedupe_plan(
    within: int,
    *,
    on: Sequence[str] = ("user",),
    late: LatePolicy = DROP,
    tolerance: int = 0,
    schema: pa.Schema = SCHEMA,
    feed: Upstream | None = None,
    rule: SparkRule | None = None,
) -> Dedupe:
    """A plan that lets the first row of each id pass, as it runs."""
    keyed = KeyBy(feed or Source(schema, "ts", Micros(tolerance)), tuple(on))
    return optimize(Dedupe.by_rule(keyed, rule, late) if rule else Dedupe(keyed, Micros(within), late))


def logical_join(
    left: Window,
    right: Window,
    *,
    keys: Sequence[str] = ("user",),
    right_keys: Sequence[str] | None = None,
    how: How = "inner",
    match: Match = "overlap",
    where: str | None = None,
    nulls_match: tuple[bool, ...] | None = None,
    lateness: tuple[int, int] = (0, 0),
    late: tuple[LatePolicy, LatePolicy] = (DROP, DROP),
    tolerance: tuple[int, int] = (0, 0),
    feeds: tuple[Upstream | None, Upstream | None] = (None, None),
) -> Join:
    """A join as it is written. Options of the sides are pairs, and so are `feeds`, other operators."""
    sides = []
    for number, (window, schema, time) in enumerate(
        ((left, LEFT_ROWS, "ts"), (right, RIGHT_ROWS, "at"))
    ):
        rows = feeds[number] or Source(schema, time, Micros(tolerance[number]))
        names = right_keys if number and right_keys is not None else keys
        keyed = KeyBy(rows, tuple(names))
        sides.append(WindowBy(keyed, window, Micros(lateness[number]), late[number]))
    return Join(*sides, how, match, where, nulls_match)


def join_plan(left: Window, right: Window, **options: object) -> Join:
    """A join as it runs: optimized."""
    return optimize(logical_join(left, right, **options))


def upstream(plan: Plan) -> list[list[int | tuple[int, ...]]]:
    """For each operator what each of its inputs reads: another operator, or sources."""
    return [[edge.upstream for edge in vertex.edges] for vertex in compile(plan).vertices]


def changed_parts(one: Plan, other: Plan) -> list[str]:
    """The parts that state depends on in which two plans differ, in words."""
    before, after = (identity_of(compile(plan), 4, 1) for plan in (one, other))
    changed = [change for change in differences(before, after) if change.binds]
    prints = ({fingerprint(each.own(name)) for name in each.operators} for each in (before, after))
    assert (len(changed) > 0) == (next(prints) != next(prints)), "state knows what differs"
    return [path_in_words(change.part) for change in changed]
