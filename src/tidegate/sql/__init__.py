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
    """Compile SQL text to a program. `streams` and `sinks` are those that are declared elsewhere.

    Spark's analyzer finds the types of expressions. `spark` is a session, which checks every expression,
    or a function that starts one, which is called only if a plan depends on a type. Without it, only
    columns, casts and literals have types.

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

    analyzer = None if spark is None else SparkAnalyzer(spark)
    return program_of(Text(sql), streams, sinks, analyzer, thorough=not callable(spark))
