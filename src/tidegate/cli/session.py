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


class Session:
    """The Spark session of a command, started when it is needed for the first time."""

    def __init__(self, arguments: Namespace) -> None:
        self._arguments = arguments
        self._spark: Any = None

    def __call__(self) -> Any:
        if self._spark is None:
            self._spark = self._started()
        return self._spark

    def _started(self) -> Any:
        """A local session, one on a cluster, or one of a server."""
        given = self._arguments
        settings, files = dict(getattr(given, "conf", ())), getattr(given, "py_files", [])
        if getattr(given, "remote", None):
            from tidegate.spark.session import connect_spark

            return connect_spark(given.remote, files, **settings)
        return self._classic(settings, files)

    def _classic(self, settings: dict[str, str], files: list[str]) -> Any:
        """A session with a JVM of its own; its logs are not shown, unless asked for."""
        from tidegate.spark.classic import cluster_spark, local_spark, set_log_level, stderr_into

        given = self._arguments
        with nullcontext() if given.debug else stderr_into(Path(os.devnull)):
            if getattr(given, "master", None):
                spark = cluster_spark(given.master, files, **settings)
            else:
                spark = local_spark(getattr(given, "cores", None) or os.cpu_count() or 1, **settings)
        set_log_level(spark, "INFO" if given.debug else "OFF")
        return spark

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()


@contextmanager
def deferred_session(arguments: Namespace) -> Iterator[Session]:
    """The session, for those who may need none; if it was started, it is stopped at the end."""
    spark = Session(arguments)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def session(arguments: Namespace) -> Iterator[Any]:
    """The session, at once."""
    with deferred_session(arguments) as spark:
        yield spark()


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
