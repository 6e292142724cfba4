"""Processes that tests kill."""

import os
import signal

import psutil


def kill_session(session: int) -> None:
    """SIGKILL for all processes of a session: Spark's workers are a process group of their own."""
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # gone in the meantime
