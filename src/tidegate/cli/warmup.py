"""`tidegate warmup`: local sessions of this environment start in half the time from then on."""

from __future__ import annotations

import os
import tempfile
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tidegate.cli.failures import OK
from tidegate.errors import SessionError
from tidegate.spark.class_archive import ARCHIVE, write_at_exit


def run(arguments: Namespace) -> int:
    if not os.access(ARCHIVE.parent, os.W_OK):
        raise SessionError(
            f"{ARCHIVE.parent} cannot be written: run this as the owner of the environment"
        )
    from tidegate.spark.classic import stderr_into

    with nullcontext() if arguments.debug else stderr_into(Path(os.devnull)):
        write_archive()
    size = ARCHIVE.stat().st_size >> 20
    print(f"wrote {ARCHIVE} ({size} MB): local sessions of this environment start from it")
    return OK


def write_archive(archive: Path = ARCHIVE, options: str = "") -> None:
    """Start a JVM, let it load what queries load, and end it."""
    from tidegate.spark.classic import end_java, local_spark, set_log_level

    staged = archive.with_suffix(".part")
    write_at_exit(staged, options)
    spark = local_spark(cores=1, app="class-archive")
    set_log_level(spark, "OFF")
    with tempfile.TemporaryDirectory() as folder:
        _run_a_query(spark, folder)
    end_java(spark)
    staged.rename(archive)


def _run_a_query(spark: Any, folder: str) -> None:
    """Rows from files, a window, results into a folder and on the driver."""
    import tidegate as tg

    rows = spark.sql("select timestamp'2024-05-01 12:00:01Z' ts, 'ann' user, 12.5D price")
    rows.write.parquet(f"{folder}/clicks")
    clicks = spark.readStream.schema(rows.schema).parquet(f"{folder}/clicks")
    windows = tg.events(clicks, time="ts").key_by("user").window(tg.tumbling("10 s"))
    query = (
        windows.agg(n=tg.count())
        .emit(tg.emit.on_update())
        .start(
            checkpoint=f"{folder}/checkpoint",
            trigger={"availableNow": True},
            main=tg.sinks.parquet(f"{folder}/results"),
            errors=lambda rows, _: rows.collect(),
        )
    )
    query.await_termination()
    spark.read.parquet(f"{folder}/results").collect()
