"""Which kernels run a plan."""

from tidegate.operators.chained import Chained
from tidegate.operators.kernel import Kernel
from tidegate.operators.reorder import ReorderKernel
from tidegate.operators.sessions import SessionKernel
from tidegate.operators.slices import SliceKernel
from tidegate.operators.sliding import SlidingKernel
from tidegate.plan.graph import held_back
from tidegate.plan.nodes import Output, Reorder, stages_of
from tidegate.plan.windows import Session, Sliding


def kernels_of(plan: Output) -> list[Kernel]:
    """The kernels of a chain, the one that reads the sources first."""
    first, *others = stages_of(plan)
    return [_kernel_of(first), *(_chained(stage, number) for number, stage in enumerate(others, 2))]


def _chained(stage: Output, number: int) -> Chained:
    return Chained(_kernel_of(stage), held_back(stage), number, retracts=stage.retracts)


def _kernel_of(stage: Output) -> Kernel:
    if isinstance(stage, Reorder):
        return ReorderKernel(stage)
    window = stage.windowed.window
    if isinstance(window, Sliding):
        return SlidingKernel(stage, window)
    return SessionKernel(stage) if isinstance(window, Session) else SliceKernel(stage)
