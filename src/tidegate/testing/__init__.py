"""Testing without Spark: table literals, dry runs, transcripts, changelogs.

[Testing](testing.md) shows how. `KernelHost`, `differences` and `run` are for the tests of tidegate
itself, and take plans.
"""

from tidegate.testing.changelog import Changelog, IllegalChange, consolidate, replay
from tidegate.testing.dry_run import DryRun, Stream, check
from tidegate.testing.host import KernelHost
from tidegate.testing.programs import load
from tidegate.testing.results import BatchResult, assert_rows, differences
from tidegate.testing.table import at, rows, text
from tidegate.testing.transcript import Transcript, run

__all__ = [
    "BatchResult",
    "Changelog",
    "DryRun",
    "IllegalChange",
    "KernelHost",
    "Stream",
    "Transcript",
    "assert_rows",
    "at",
    "check",
    "consolidate",
    "differences",
    "load",
    "replay",
    "rows",
    "run",
    "text",
]
