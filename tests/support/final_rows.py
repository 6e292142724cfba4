"""The rows that a plan has emitted at the end of its input."""

from tidegate.dataflow.watermarks import WatermarkGenerator
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.testing import KernelHost
from tidegate.testing.table import Row


def final_rows(plan: WindowedAggregate, rows: list[Row], batches: int = 1) -> list[Row]:
    """What is emitted when the rows come in so many batches, none of them late, and then end."""
    host = KernelHost(plan)
    host.generators[0] = WatermarkGenerator[int](1 << 50)
    results = [host.batch(rows[start::batches]) for start in range(batches)]
    return [row for result in (*results, host.end()) for row in result.main]
