"""An archive of the Java classes that a query loads: a JVM that has it starts in half the time.

Java writes it when a program ends. It reads it only if it is of the same Java and the same jars, so it
lies in the Python environment that has these jars. `tidegate warmup` writes it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

#: Java's options for the JVM of a session, where Spark looks for them.
OPTIONS = "SPARK_SUBMIT_OPTS"
_READS, _WRITES = "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="
#: Of an archive that does not fit, Java says so at each start, and goes on without it.
_SILENT = "-Xlog:cds=off -Xlog:class+path=off"


def use_archive() -> None:
    """Let the JVM that is started next read the archive, if there is one."""
    given = os.environ.get(OPTIONS, "")
    if ARCHIVE.exists() and _READS not in given and _WRITES not in given:
        os.environ[OPTIONS] = f"{given} {_READS}{ARCHIVE} {_SILENT}".strip()


def write_at_exit(archive: Path, options: str = "") -> None:
    """Let the JVM that is started next write the archive when it ends."""
    os.environ[OPTIONS] = f"{options} {_WRITES}{archive}".strip()
