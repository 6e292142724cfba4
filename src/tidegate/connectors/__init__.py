"""Where rows come from and go to."""

from tidegate.connectors.duckdb import DuckDB
from tidegate.connectors.files import FileSink
from tidegate.connectors.postgres import Postgres
from tidegate.connectors.sinks import (
    ConsoleSink,
    DiscardSink,
    MemorySink,
    Preparable,
    Sink,
    Target,
    Write,
    for_spark,
    location,
)
from tidegate.connectors.tables import TableSink

__all__ = [
    "ConsoleSink",
    "DiscardSink",
    "DuckDB",
    "FileSink",
    "MemorySink",
    "Postgres",
    "Preparable",
    "Sink",
    "TableSink",
    "Target",
    "Write",
    "for_spark",
    "location",
]
