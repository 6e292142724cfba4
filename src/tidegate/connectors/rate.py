"""Spark's stream of numbers, for tries and tests."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from tidegate.connectors.declaration import Option, SourceConnector, declare
from tidegate.plan.schema import TIMESTAMP

__all__: list[str] = []

_option = partial(Option, of_spark=True)

declare(
    SourceConnector(
        name="rate",
        meaning="Spark's stream of numbers: so many rows a second, each with a timestamp and a value.",
        options=(
            _option("rowsPerSecond", "How many rows a second has; by default 1.", "integer"),
            _option("rampUpTime", "How long it takes to reach that rate, such as `5s`."),
            _option("numPartitions", "How many partitions a batch has.", "integer"),
        ),
        columns=pa.schema([("timestamp", TIMESTAMP), ("value", pa.int64())]),
    )
)
