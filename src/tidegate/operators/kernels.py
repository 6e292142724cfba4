"""Which kernels run a plan."""

from collections.abc import Sequence

from tidegate.operators.admission import AdmissionKernel
from tidegate.operators.chained import Chained
from tidegate.operators.dedupe import DedupeKernel
from tidegate.operators.folds import FoldKernel
from tidegate.operators.kernel import (
    ADMISSION_COUNTERS,
    COUNTERS,
    DEDUPE_COUNTERS,
    FILTERED,
    JOIN_COUNTERS,
    LATE_AT_WATERMARK,
    SHED_ROWS,
    Kernel,
    Unpack,
)
from tidegate.operators.pane_join import PaneJoin
from tidegate.operators.reorder import ReorderKernel
from tidegate.operators.session_join import SessionJoin
from tidegate.operators.sessions import SessionKernel
from tidegate.operators.slices import SliceKernel
from tidegate.operators.sliding import SlidingKernel
from tidegate.plan.channels import MAIN
from tidegate.plan.feeds import made_due, steps_of
from tidegate.plan.graph import held_back, input_names, operator_names
from tidegate.plan.nodes import Join, Output, Plan, outlets_of, stages_of
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.steps import Filter, Shed
from tidegate.plan.ties import drops_ties
from tidegate.plan.windows import AllTime, Session, Sliding


def kernels_of(plan: Plan) -> list[Kernel]:
    """The kernels of a plan, each after those that feed it."""
    outlets = outlets_of(plan).items()
    names = [[name for name, end in outlets if end == stage] for stage in stages_of(plan)]
    places = enumerate(zip(stages_of(plan), operator_names(plan), names, strict=True), 1)
    return [_in_its_place(stage, operator, number, *name) for number, (stage, operator, name) in places]


def unpack_of(plan: Plan, kernels: Sequence[Kernel], channel: str) -> Unpack:
    """How rows of a channel are read: results as their operator says, others are as they are."""
    results = outlets_of(plan)
    if channel in results:
        return kernels[stages_of(plan).index(results[channel])].unpack
    schema = plan.channels[channel]
    return lambda tables: tables[-1].cast(schema)


def counters_of(plan: Plan) -> tuple[str, ...]:
    """Every counter the operators of a plan, and the steps between them, may keep."""
    own: dict[type, tuple[str, ...]] = {
        Join: JOIN_COUNTERS,
        Dedupe: DEDUPE_COUNTERS,
        Admit: ADMISSION_COUNTERS,
        Filter: (FILTERED,),
        Shed: (SHED_ROWS,),
    }
    stages = stages_of(plan)
    ties = (LATE_AT_WATERMARK,) if any(map(drops_ties, stages)) else ()
    kinds: set[type] = {type(stage) for stage in stages}
    kinds |= {type(step) for stage in stages for inlet in stage.inlets for step in steps_of(inlet.feed)}
    return (*COUNTERS, *ties, *(name for kind, names in own.items() if kind in kinds for name in names))


def _in_its_place(stage: Output, operator: str, number: int, outlet: str = MAIN) -> Kernel:
    kernel = _kernel_of(stage)
    for port, name in zip(kernel.ports, input_names(stage, operator), strict=True):
        port.known_as(name)
    inlets = zip(stage.inlets, kernel.ports, strict=True)
    fed = frozenset(port.name for inlet, port in inlets if made_due(inlet.feed))
    if number == 1 and outlet == MAIN:
        return kernel  # it reads sources, and is the first to
    return Chained(kernel, held_back(stage), number, fed, outlet, retracts=stage.retracts)


def _kernel_of(stage: Output) -> Kernel:
    if isinstance(stage, Reorder):
        return ReorderKernel(stage)
    if isinstance(stage, Dedupe):
        return DedupeKernel(stage)
    if isinstance(stage, Admit):
        return AdmissionKernel(stage)
    if isinstance(stage, Join):
        return SessionJoin(stage) if isinstance(stage.left.window, Session) else PaneJoin(stage)
    window = stage.windowed.window
    if isinstance(window, Sliding):
        return SlidingKernel(stage, window)
    if isinstance(window, AllTime):
        return FoldKernel(stage)
    return SessionKernel(stage) if isinstance(window, Session) else SliceKernel(stage)
