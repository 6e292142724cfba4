"""Which kernel runs a plan."""

from tidegate.operators.kernel import Kernel
from tidegate.operators.sessions import SessionKernel
from tidegate.operators.slices import SliceKernel
from tidegate.plan.nodes import Emit
from tidegate.plan.windows import Session


def kernel_of(plan: Emit) -> Kernel:
    """The kernel for the plan's windows."""
    if isinstance(plan.input.input.window, Session):
        return SessionKernel(plan)
    return SliceKernel(plan)
