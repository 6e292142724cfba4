"""SQL that builds the same plan nodes as the Python API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.sql.program import Column, Input, Insert, Program, Projection, SinkTable, Stream

if TYPE_CHECKING:
    from tidegate.sql.analysis import Session

__all__ = ["Column", "Input", "Insert", "Program", "Projection", "SinkTable", "Stream", "compile"]


def compile(
    sql: str,
    *,
    streams: Iterable[Stream] = (),
    sinks: Iterable[SinkTable] = (),
    spark: Session | None = None,
) -> Program:
    """The program that a text is. `streams` and `sinks` are those that are declared elsewhere.

    Types of expressions come from the analyzer of `spark`, a session, or a function that starts one
    if it is needed. Without it only columns, casts and plain values have types.

    >>> program = compile('''
    ...     CREATE STREAM clicks (ts TIMESTAMP, user STRING, WATERMARK FOR ts AS ts)
    ...     WITH (connector = 'files', path = 'clicks', format = 'json');
    ...     SELECT user, window_start, window_end, count(*) AS n
    ...     FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)
    ... ''')
    >>> print(program.selects[0].plan.windowed.window)
    tumbling(1 minute)
    """
    # The compiler takes its time to load, and programs that are given otherwise do without.
    from tidegate.sql.analysis import SparkAnalyzer
    from tidegate.sql.compiler import program_of
    from tidegate.sql.source import Text

    return program_of(Text(sql), streams, sinks, None if spark is None else SparkAnalyzer(spark))
