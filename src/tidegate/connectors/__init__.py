"""Where rows come from and go to."""

from tidegate.connectors import registry as registry  # so that every connector is declared
from tidegate.connectors.declaration import SINKS, SOURCES, Connector, Option, connector_of
from tidegate.connectors.files import FileSink
from tidegate.connectors.memory import MemorySink
from tidegate.connectors.sinks import (
    ArrowWrite,
    Preparable,
    RowType,
    Sink,
    Stage,
    StagedSink,
    StagedWrite,
    Target,
    Write,
    for_spark,
    location,
    shows_rows_in_process,
)
from tidegate.connectors.tables import TableSink

__all__ = [
    "SINKS",
    "SOURCES",
    "ArrowWrite",
    "Connector",
    "FileSink",
    "MemorySink",
    "Option",
    "Preparable",
    "RowType",
    "Sink",
    "Stage",
    "StagedSink",
    "StagedWrite",
    "TableSink",
    "Target",
    "Write",
    "connector_of",
    "for_spark",
    "location",
    "shows_rows_in_process",
]
