"""SQL that builds the same plan nodes as the Python API."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.sql.program import Column, Input, Insert, Program, SinkTable, Stream

__all__ = ["Column", "Input", "Insert", "Program", "SinkTable", "Stream", "compile"]


def compile(sql: str, *, streams: Iterable[Stream] = (), sinks: Iterable[SinkTable] = ()) -> Program:
    """The program that a text is. `streams` and `sinks` are those that are declared elsewhere.

    >>> program = compile('''
    ...     CREATE STREAM clicks (ts TIMESTAMP, user STRING, WATERMARK FOR ts AS ts)
    ...     WITH (connector = 'files', path = 'clicks', format = 'json');
    ...     SELECT user, window_start, window_end, count(*) AS n
    ...     FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)
    ... ''')
    >>> print(program.selects[0].plan.windowed.window)
    tumbling(1 minute)
    """
    # The parser takes its time to load, and programs that are given otherwise do without.
    from tidegate.sql.compiler import program_of
    from tidegate.sql.source import Text

    return program_of(Text(sql), streams, sinks)
