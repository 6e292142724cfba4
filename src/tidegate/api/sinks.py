"""Where the rows of a channel go: `tg.sinks`. Any function `(rows: DataFrame, batch_id)` works too."""

from os import PathLike, fspath

from tidegate.connectors import ConsoleSink, DiscardSink, FileSink, MemorySink


def memory() -> MemorySink:
    """Rows kept on the driver; `rows()` and `to_arrow()` read them."""
    return MemorySink()


def console(limit: int = 20) -> ConsoleSink:
    """Rows printed batch by batch."""
    return ConsoleSink(limit)


def parquet(path: str | PathLike[str]) -> FileSink:
    """Parquet files in a folder, each row exactly once, also after a crash."""
    return FileSink(fspath(path), "parquet")


def json(path: str | PathLike[str]) -> FileSink:
    """JSON lines in a folder, each row exactly once, also after a crash."""
    return FileSink(fspath(path), "json")


def discard() -> DiscardSink:
    """Rows that are only counted."""
    return DiscardSink()
