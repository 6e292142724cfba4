"""Where rows come from and go to."""

from tidegate.connectors.sinks import ConsoleSink, DiscardSink, FileSink, MemorySink, Sink, location

__all__ = ["ConsoleSink", "DiscardSink", "FileSink", "MemorySink", "Sink", "location"]
