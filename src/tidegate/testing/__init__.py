"""Testing without Spark: table literals, a host for kernels, transcripts, an oracle."""

from tidegate.testing.changelog import Changelog, IllegalChange, replay
from tidegate.testing.host import KernelHost
from tidegate.testing.oracle import Oracle
from tidegate.testing.results import BatchResult, differences
from tidegate.testing.table import at, rows, text
from tidegate.testing.transcript import Transcript, run

__all__ = [
    "BatchResult",
    "Changelog",
    "IllegalChange",
    "KernelHost",
    "Oracle",
    "Transcript",
    "at",
    "differences",
    "replay",
    "rows",
    "run",
    "text",
]
