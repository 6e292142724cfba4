"""Streams of Kafka. Spark's own package for it reads them."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from tidegate.connectors.declaration import Option, SourceConnector, declare
from tidegate.connectors.text_options import INVALID_FIELDS, PACE
from tidegate.plan.schema import TIMESTAMP

__all__: list[str] = []

_option = partial(Option, of_spark=True)

#: A message as Spark gives it.
_MESSAGE = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
}

declare(
    SourceConnector(
        name="kafka",
        meaning="Messages of Kafka. Any option that starts with `kafka.` is one of Kafka's consumer.",
        options=(
            _option(
                "kafka.bootstrap.servers", "The brokers, as `host:port`, with commas.", required=True
            ),
            _option("subscribe", "The topics, with commas."),
            _option("subscribePattern", "A regular expression of the topics."),
            _option("assign", 'Partitions of topics, as JSON: `{"clicks": [0, 1]}`.'),
            Option(
                "format",
                "The values are JSON with the columns of the stream; otherwise rows are messages.",
                values=("json",),
            ),
            _option("startingOffsets", "Where a new query starts: `latest`, `earliest` or JSON."),
            _option("maxOffsetsPerTrigger", "The most messages of a batch.", "integer"),
            _option("minPartitions", "How many Spark partitions a batch has at least.", "integer"),
            _option("failOnDataLoss", "Does the query fail if messages have been deleted?", "boolean"),
            PACE,
            INVALID_FIELDS,
        ),
        prefix="kafka.",
        reader="tidegate.spark.sources.declared:read_messages",
        columns=pa.schema(list(_MESSAGE.items())),
    )
)
