"""`tidegate sql "…"`: the answer about the rows that are there now, as a table."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.cli.failures import OK, QueryFailed, cause
from tidegate.cli.session import deferred_session, end_on_sigterm
from tidegate.pipeline.load import question
from tidegate.pipeline.path_checks import check_inputs
from tidegate.sql.program import Insert


def run(arguments: Namespace) -> int:
    end_on_sigterm()
    with deferred_session(arguments) as spark:
        asked = question(arguments.text, Path.cwd(), spark=spark)
        check_inputs(asked)
        running = spark()
        asked = question(arguments.text, Path.cwd(), spark=running)  # about every expression
        found = _answer(running, asked, arguments)
    shown = found.slice(0, arguments.limit)
    if arguments.json:
        for row in shown.to_pylist():
            print(json.dumps(row, default=_plain, ensure_ascii=False))
    else:
        _print_table(shown, more=found.num_rows > arguments.limit)
    return OK


def _answer(spark: Any, asked: Insert, arguments: Namespace) -> pa.Table:
    """The first rows in the order of their columns, and one more if there are any."""
    from tidegate.pipeline.start import answer
    from tidegate.plan.schema import is_key_type
    from tidegate.spark.schema import arrow_schema

    try:
        rows = answer(spark, asked)
        ordered = [place for place, f in enumerate(arrow_schema(rows), 1) if is_key_type(f.type)]
        return rows.orderBy(*ordered).limit(arguments.limit + 1).toArrow()
    except Exception as error:  # Spark's own, of many kinds
        raise QueryFailed(cause(error)) from error


def _print_table(rows: pa.Table, *, more: bool) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    numeric = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in rows.schema]
    columns = zip(rows.column_names, numeric, strict=True)
    table = Table(*(Column(name, justify="right" if n else "left") for name, n in columns))
    for row in rows.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(f"the first {rows.num_rows:,} rows" if more else f"{rows.num_rows:,} rows")


def _cell(value: object) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:g}"
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case _:
            return str(value)


def _plain(value: object) -> str:
    """A value that JSON has no word for."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
