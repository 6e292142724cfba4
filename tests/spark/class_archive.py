"""An archive of the classes that Spark loads, for the JVMs of the tests: each starts in half the time.

Java writes it when a program ends, and only reads it when it is of the same Java and the same jars.
"""

import os
import sys
import tempfile
from pathlib import Path

#: Queries and processes of the tests live for seconds: the quick compiler, and no checks of classes.
#: A session that serves many tests needs more room for code than that compiler is given.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

#: Of the environment, as it is of the jars of its Spark.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"


def java_options() -> str:
    """What the tests' JVMs are started with."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else SHORT_LIVED


def write(archive: Path) -> None:
    """Run what tests run: rows from files, a window, results into a folder and on the driver."""
    staged = archive.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={staged}"
    import tidegate as tg

    spark = tg.local_spark(cores=1, app="class-archive")
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
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
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait()
    staged.rename(archive)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
