"""Results side by side: each branch puts out what it does alone, and what they share counts once."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given, note
from hypothesis import strategies as st

from tests.property import programs as p
from tests.property.test_steps_against_the_oracle import TWINS
from tests.support.plans import WITH_IDLE, hopping, logical_plan, sliding
from tests.support.python_stage_host import PythonStageHost
from tests.support.steps import FUSIONS, mapped
from tidegate.dataflow import compile
from tidegate.kernels import aggregates as a
from tidegate.optimize import optimize
from tidegate.plan.inputs import KeyBy
from tidegate.plan.nodes import Join, Together
from tidegate.plan.pass_through import Admit, Dedupe, Reorder
from tidegate.plan.policies import Drop, OnWatermark, Retracting, SideOutput
from tidegate.plan.sla import declare_sla
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.plan.windows import AllTime, Hopping
from tidegate.testing import BatchResult, KernelHost
from tidegate.testing.results import row_differences

COUNT = (("n", a.Count(None)),)
ROW_TWINS = [twin for twin in TWINS if "n" not in twin.needs]


@st.composite
def steps_over(draw, feed, most=2):
    for twin in draw(st.lists(st.sampled_from(ROW_TWINS), max_size=most)):
        feed = twin.step(feed)
    return feed


@st.composite
def bases(draw):
    """What branches share: a source, steps, and perhaps an operator that rows pass, and more steps."""
    feed = draw(steps_over(Source(WITH_IDLE, "ts", Micros(draw(st.sampled_from([0, 5, 40]))))))
    kind = draw(st.sampled_from(["nothing", "dedupe", "admit", "both"]))
    if kind in ("admit", "both"):
        limits = declare_sla(max_rate=100_000, capacity=3, max_lag="200 us")
        feed = draw(steps_over(Derived(Admit(KeyBy(feed, draw(p.ANY_KEY)), limits), "ts")))
    if kind in ("dedupe", "both"):
        late = draw(st.sampled_from([Drop(), SideOutput("too_old")]))
        distinct = Dedupe(KeyBy(feed, ("user", "items")), Micros(draw(st.integers(1, 80))), late)
        feed = draw(steps_over(Derived(distinct, "ts")))
    return feed


@st.composite
def branches(draw, base, name):
    feed = draw(steps_over(base))
    kind = draw(st.sampled_from(["windows", "sessions", "around", "order", "fold", "chain", "join"]))
    policy = draw(st.sampled_from([Drop(), p.POLICIES["reassign"], SideOutput(f"late_{name}")]))
    keys = draw(p.ANY_KEY)
    if kind == "order":
        return Reorder(KeyBy(feed, keys), policy)
    if kind == "fold":
        return logical_plan(AllTime(), draw(p.aggregates()), keys=keys, emission=Retracting(), feed=feed)
    if kind == "join":
        window = hopping(draw(st.integers(1, 30)))
        sides = [WindowBy(KeyBy(draw(steps_over(feed, 1)), keys), window) for _ in range(2)]
        return Join(*sides)
    if kind == "chain":
        first = logical_plan(hopping_of(draw), keys=keys, late=policy, feed=feed)
        time = draw(st.sampled_from(["window_start", "window_end"]))
        return logical_plan(
            hopping_of(draw), (("again", a.Sum("n")),), keys=(), feed=Derived(first, time)
        )
    window = {
        "windows": lambda: hopping_of(draw),
        "sessions": lambda: draw(p.sessions().filter(lambda one: one.gap != "idle")),
        "around": lambda: sliding(draw(st.integers(0, 40)), draw(st.integers(0, 40))),
    }[kind]()
    emission = draw(st.sampled_from(list(p.STRATEGIES.values()))) if kind == "windows" else OnWatermark()
    return logical_plan(
        window, draw(p.aggregates()), keys=keys, emission=emission, late=policy, feed=feed
    )


@st.composite
def several(draw, base, count):
    """Branches by name; no two are the same, which is refused."""
    own = [draw(branches(base, number)) for number in range(count)]
    assume(all(own.count(branch) == 1 for branch in own))
    return [(f"b{number}", branch) for number, branch in enumerate(own)]


def hopping_of(draw) -> Hopping:
    return draw(p.windows(30))


def rows_into(plan, rows):
    """The rows of the only frame for each source: alone, each side of a join reads it by itself."""
    return [rows] * len(plan.sources)


def outcomes(plan, steps, buckets, host=KernelHost) -> list[BatchResult]:
    host, results = host(plan, buckets=buckets), []
    for step in (*steps, p.Step([])):
        host.now += step.pause
        rows = rows_into(plan, step.rows)
        if step.restart:
            host.restart()
        if step.fails_first:
            host.failed_batch(*rows, worker=step.worker)
        results.append(host.batch(*rows, worker=step.worker))
    return [*results, host.end()]


@given(data=st.data())
def test_each_branch_is_as_it_is_alone(data):
    base = data.draw(bases())
    count = data.draw(st.integers(2, 4))
    own = data.draw(several(base, count))
    if isinstance(base, Derived) and data.draw(st.booleans()):
        own.append(("rows", base.input))
    plan = Together(tuple(own))
    fusion = FUSIONS[data.draw(st.sampled_from(list(FUSIONS)))]
    made, buckets = data.draw(p.steps(size=10, packs=1)), data.draw(st.integers(1, 3))
    note(repr(p.Program(plan, made, buckets)))
    together = p.unnumbered(outcomes(optimize(plan, fusion), made, buckets, PythonStageHost))
    alone = {name: p.unnumbered(outcomes(optimize(branch), made, buckets)) for name, branch in own}
    for name, branch in own:
        for number, (one, all_) in enumerate(zip(alone[name], together, strict=True)):
            assert one.watermark_micros == all_.watermark_micros
            found = row_differences(branch, "main", one.main, all_.channels.get(name, []))
            assert not found, f"{name}, batch {number}: {found}"
            # Alone, what both sides of a join read is there twice, with what it sets apart.
            apart = (
                set()
                if isinstance(branch, Join)
                else compile(branch).channels.keys() - {"main", "errors"}
            )
            for channel in apart:
                rows = (result.channels.get(channel, []) for result in (one, all_))
                assert not row_differences(branch, channel, *rows), f"{channel}, batch {number}"
    if any(isinstance(branch, Join) for _, branch in own):
        return  # for the same reason its counters are its own
    shared = logical_plan(AllTime(), COUNT, keys=(), emission=Retracting(), feed=base)
    for number, result in enumerate(outcomes(optimize(shared), made, buckets)):
        total = Counter(result.counts)
        for name, _ in own:
            total.update(alone[name][number].counts)
            total.subtract(result.counts)
        if own[-1][0] == "rows":
            # It is what the others have in common, and no more.
            assert +alone["rows"][number].counts <= +result.counts
            total.update(result.counts)
            total.subtract(alone["rows"][number].counts)
        assert +together[number].counts == +total, f"batch {number}"
        errors = (one.channels.get("errors", []) for one in (result, together[number]))
        assert len(next(errors)) == len(next(errors))


@given(data=st.data())
def test_what_branches_share_runs_once(data):
    """The functions of shared steps see each row once, whatever follows and however it is fused."""
    seen = []

    def watched(rows):
        seen.extend(rows["items"])
        return rows

    source = Source(WITH_IDLE, "ts", Micros(0))
    base = data.draw(steps_over(mapped(source, watched)))
    own = data.draw(several(base, 3))
    fusion = FUSIONS[data.draw(st.sampled_from(list(FUSIONS)))]
    made = [replace(step, fails_first=False) for step in data.draw(p.steps(size=10, packs=1))]
    plan = optimize(Together(tuple(own)), fusion)
    seen.clear()
    outcomes(plan, made, 1, PythonStageHost)
    sound = [row["items"] for step in made for row in step.rows if row["ts"] is not None]
    assert Counter(seen) == Counter(sound)
