"""The Spark session of a command, and signals that end it in good order."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import Any


@contextmanager
def session(arguments: Namespace) -> Iterator[Any]:
    """A local session; its logs are not shown, unless asked for."""
    from tidegate.spark.session import local_spark, stderr_into

    settings = dict(arguments.conf)
    with nullcontext() if arguments.debug else stderr_into(Path(os.devnull)):
        spark = local_spark(arguments.cores or os.cpu_count() or 1, **settings)
    spark.sparkContext.setLogLevel("INFO" if arguments.debug else "OFF")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def interruptions() -> Iterator[Event]:
    """Set by Ctrl-C and SIGTERM, so that a batch is not cut in the middle of our own work.

    Who asks twice does not want to wait: the second time raises `KeyboardInterrupt`.
    """
    asked = Event()

    def ask(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_on_sigterm() -> None:
    """SIGTERM as Ctrl-C, until `interruptions` takes over."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
