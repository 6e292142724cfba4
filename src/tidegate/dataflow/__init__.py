"""What a query is, once: compiled from an optimized plan, read by everything else."""

from tidegate.dataflow.compile import compile
from tidegate.dataflow.graph import Dataflow, Edge, Vertex

__all__ = ["Dataflow", "Edge", "Vertex", "compile"]
