"""How kernels are built: they have inputs, and are none; one template of a step stands above them."""

import pytest

from tests.support.plans import hopping, join_plan, plan_of, reorder_plan, session
from tidegate.dataflow import compile
from tidegate.kernels.contract import KeyedKernel
from tidegate.kernels.inputs import KeyedInput
from tidegate.kernels.registry import kernels_of
from tidegate.kernels.windows.kernel import SliceKernel
from tidegate.plan.policies import Retracting
from tidegate.plan.windows import AllTime


def test_kernels_inherit_the_template_of_a_step_and_nothing_else():
    kernels = KeyedKernel.__subclasses__()
    assert SliceKernel in kernels
    assert {kernel.__bases__ for kernel in kernels} == {(KeyedKernel,)}
    assert [kernel for kernel in kernels if kernel.__subclasses__()] == []
    assert KeyedInput.__subclasses__() == []


@pytest.mark.parametrize(
    ("plan", "inputs"),
    [
        (plan_of(hopping(10)), 1),
        (plan_of(session(10)), 1),
        (plan_of(AllTime(), emission=Retracting()), 1),
        (reorder_plan(), 1),
        (join_plan(hopping(10), hopping(10)), 2),
        (join_plan(session(10), session(10)), 2),
    ],
    ids=lambda one: getattr(one, "title", one),
)
def test_a_kernel_has_an_input_for_each_of_its_operator(plan, inputs):
    [kernel] = kernels_of(compile(plan))
    assert len(kernel.inputs) == inputs
    assert all(type(one) is KeyedInput for one in kernel.inputs)
    assert len({one.name for one in kernel.inputs}) == inputs
