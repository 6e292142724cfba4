"""The registry of sinks: a name that pipeline files and errors use, and what makes the sink."""

from tidegate.connectors.sinks import ConsoleSink, DiscardSink, FileSink, MemorySink, Sink, location

SINKS = {
    "memory": MemorySink,
    "console": ConsoleSink,
    "parquet": lambda path: FileSink(path, "parquet"),
    "json": lambda path: FileSink(path, "json"),
    "discard": DiscardSink,
}

__all__ = ["SINKS", "ConsoleSink", "DiscardSink", "FileSink", "MemorySink", "Sink", "location"]
