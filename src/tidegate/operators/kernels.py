"""Which kernel runs an operator, and how it is placed among the others of a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.dataflow.graph import Dataflow, Vertex
from tidegate.operators.admission import AdmissionKernel
from tidegate.operators.chained import Chained
from tidegate.operators.dedupe import DedupeKernel
from tidegate.operators.folds import FoldKernel
from tidegate.operators.kernel import Kernel, Unpack
from tidegate.operators.pane_join import PaneJoin
from tidegate.operators.reorder import ReorderKernel
from tidegate.operators.session_join import SessionJoin
from tidegate.operators.sessions import SessionKernel
from tidegate.operators.slices import SliceKernel
from tidegate.operators.sliding import SlidingKernel
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import Join
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.windowing import Emit
from tidegate.plan.windows import AllTime, Hopping, Session, Sliding

#: The kernel of each operator, by what it is and what its windows are.
KERNELS: dict[tuple[type, ...], Callable[[Any], Kernel]] = {
    (Emit, Hopping): SliceKernel,
    (Emit, Session): SessionKernel,
    (Emit, Sliding): SlidingKernel,
    (Emit, AllTime): FoldKernel,
    (Join, Hopping, Hopping): PaneJoin,
    (Join, Session, Session): SessionJoin,
    (Reorder,): ReorderKernel,
    (Dedupe,): DedupeKernel,
    (Admit,): AdmissionKernel,
}


def kernels_of(dataflow: Dataflow) -> list[Kernel]:
    """The kernel of each vertex."""
    return [_in_its_place(vertex) for vertex in dataflow.vertices]


def unpack_of(dataflow: Dataflow, kernels: Sequence[Kernel], channel: str) -> Unpack:
    """How rows of a channel are read: results as their operator says, others are as they are."""
    if vertex := dataflow.outputs.get(channel):
        return kernels[vertex.number].unpack
    schema = dataflow.channels[channel]
    return lambda tables: tables[-1].cast(schema)


def _in_its_place(vertex: Vertex) -> Kernel:
    operator = vertex.operator
    kernel = KERNELS[type(operator), *map(type, operator.windows)](operator)
    for edge, port in zip(vertex.edges, kernel.ports, strict=True):
        port.known_as(edge.name)
    outlet = vertex.channel or MAIN
    if vertex.number == 0 and outlet == MAIN:
        return kernel  # it reads sources, and is the first to
    inputs = zip(vertex.edges, kernel.ports, strict=True)
    fed = frozenset(port.name for edge, port in inputs if edge.watermark_triggered)
    return Chained(kernel, vertex.delay, fed, outlet, retracts=operator.retracts)
