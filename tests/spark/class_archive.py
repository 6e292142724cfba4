"""The archive of Java classes that `tidegate warmup` writes, for the JVMs of the tests."""

import sys
from pathlib import Path

from tidegate.cli.warmup import write_archive
from tidegate.spark.class_archive import ARCHIVE

#: Queries and processes of the tests live for seconds: the quick compiler, and no checks of classes.
#: A session that serves many tests needs more room for code than that compiler is given.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def java_options() -> str:
    """What the tests' JVMs are started with."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else SHORT_LIVED


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]), SHORT_LIVED)
