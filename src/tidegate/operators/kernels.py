"""Which kernels run a plan."""

from tidegate.operators.admission import AdmissionKernel
from tidegate.operators.chained import Chained
from tidegate.operators.dedupe import DedupeKernel
from tidegate.operators.folds import FoldKernel
from tidegate.operators.kernel import (
    ADMISSION_COUNTERS,
    COUNTERS,
    DEDUPE_COUNTERS,
    JOIN_COUNTERS,
    Kernel,
)
from tidegate.operators.pane_join import PaneJoin
from tidegate.operators.reorder import ReorderKernel
from tidegate.operators.session_join import SessionJoin
from tidegate.operators.sessions import SessionKernel
from tidegate.operators.slices import SliceKernel
from tidegate.operators.sliding import SlidingKernel
from tidegate.plan.graph import held_back
from tidegate.plan.nodes import Admit, Dedupe, Join, Output, Reorder, made_due, stages_of
from tidegate.plan.windows import AllTime, Session, Sliding


def kernels_of(plan: Output) -> list[Kernel]:
    """The kernels of a plan, each after those that feed it."""
    return [_in_its_place(stage, number) for number, stage in enumerate(stages_of(plan), 1)]


def counters_of(plan: Output) -> tuple[str, ...]:
    """Every counter the operators of a plan may keep."""
    own = {Join: JOIN_COUNTERS, Dedupe: DEDUPE_COUNTERS, Admit: ADMISSION_COUNTERS}
    kinds = {type(stage) for stage in stages_of(plan)}
    return (*COUNTERS, *(name for kind, names in own.items() if kind in kinds for name in names))


def _in_its_place(stage: Output, number: int) -> Kernel:
    kernel = _kernel_of(stage)
    inlets = zip(stage.inlets, kernel.ports, strict=True)
    fed = frozenset(port.name for inlet, port in inlets if made_due(inlet.feed))
    if number == 1:
        return kernel  # it reads sources, and is the first to
    return Chained(kernel, held_back(stage), number, fed, retracts=stage.retracts)


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
