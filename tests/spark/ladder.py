"""A rung of the ladder: queries that were begun on one version of Spark go on with another.

    python -m tests.spark.ladder FOLDER RUNG RUNGS

runs rung RUNG, counted from 0, of RUNGS, on the Spark of this environment. Checkpoints are in FOLDER.
Each rung has a micro-batch of its own, and what it puts out must be what the oracle says, which knows of
no restart. The last rung drains the queries: what is left in their state must be the oracle's, too.
`scripts.matrix` climbs it, from the oldest version to the newest.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

import tidegate as tg
from tests.oracle import Oracle
from tests.spark.files import file_stream, write_files
from tests.spark.test_joins import LEFT, RIGHT, Event, chain, coming_and_going, table_of
from tidegate.testing.results import row_differences
from tidegate.testing.table import Row, micros_of

ROWS_OF_A_RUNG = 120


def hopping(left: Any, right: Any) -> Any:
    """Windows that late rows correct, over a folder that tidegate reads."""
    keyed = tg.events(left, time="ts", tolerance="1 second").key_by("user")
    windows = keyed.window(tg.hopping("20 s", "10 s"), allowed_lateness="2 seconds")
    return windows.agg(n=tg.count(), shown=tg.sum("shown")).emit(tg.emit.changelog())


def sessions(left: Any, right: Any) -> Any:
    """Sessions that merge, over files that Spark reads."""
    keyed = tg.events(right, time="at", tolerance="4 seconds").key_by("user")
    return keyed.window(tg.session("3 s")).agg(n=tg.count(), clicks=tg.collect("click"))


@dataclass(frozen=True)
class Ladder:
    """The queries of a folder, each with a checkpoint of its own."""

    folder: Path
    rungs: int

    def write(self, rung: int) -> None:
        """The files of a rung, one for each source."""
        for name, schema, seed in (("left", LEFT, 0), ("right", RIGHT, 1)):
            write_files(self.folder / name, [table_of(self._events(seed)[rung], schema)], start=rung)

    def climb(self, spark: Any, rung: int) -> Iterator[str]:
        """How what a rung puts out differs from what it should."""
        self.write(rung)
        folder = tg.read_folder(spark, self.folder / "left", schema=LEFT, format="parquet")
        left, right = (
            file_stream(spark, self.folder / name, schema)
            for name, schema in (("left", LEFT), ("right", RIGHT))
        )
        programs = (hopping(folder, right), sessions(left, right), chain(left, right))
        names = ("hopping", "sessions", "chain")
        sinks = [tg.sinks.memory() for _ in names]
        queries = [
            program.start(checkpoint=self.folder / name, trigger={"availableNow": True}, main=main)
            for name, program, main in zip(names, programs, sinks, strict=True)
        ]
        for name, program, main, query in zip(names, programs, sinks, queries, strict=True):
            query.await_termination()
            expected = self.expected(program.node, rung)
            assert expected or rung == 0, f"{name}: the rung has nothing to compare"
            yield from _told(name, row_differences(program.node, "main", expected, main.rows()))
            if rung == self.rungs - 1:
                before = len(main.rows())
                query.stop(drain=True)
                left_open = self.expected(program.node, rung, ends=True)
                drained = main.rows()[before:]
                yield from _told(
                    f"{name}, drained", row_differences(program.node, "main", left_open, drained)
                )

    def expected(self, plan: Any, last: int, *, ends: bool = False) -> list[Row]:
        """What the oracle puts out with a rung, after all before it; or if the stream ends with it."""
        oracle, watermark, out = Oracle(plan), None, []
        for rung in range(last + 1):
            rows = [self._rows(source, rung) for source in plan.sources]
            out = list(oracle.batch_of(rows, watermark).main)
            watermark = self._watermark(plan, rung)
            # Spark runs a batch without rows when the watermark has moved.
            out += oracle.batch_of([[] for _ in rows], watermark).main
        return list(oracle.end().main) if ends else out

    def _watermark(self, plan: Any, rung: int) -> int:
        """That of the slowest source."""
        return min(
            max(micros_of(row[source.time]) for n in range(rung + 1) for row in self._rows(source, n))
            - source.tolerance
            for source in plan.sources
        )

    def _rows(self, source: Any, rung: int) -> list[Row]:
        seed, schema = (0, LEFT) if source.time == "ts" else (1, RIGHT)
        return table_of(self._events(seed)[rung], schema).to_pylist()

    def _events(self, seed: int) -> list[list[Event]]:
        return coming_and_going(ROWS_OF_A_RUNG * self.rungs, ROWS_OF_A_RUNG, seed)


def _told(name: str, differences: list[str]) -> list[str]:
    return [f"{name}: {difference}" for difference in differences]


def main(folder: str, rung: str, rungs: str) -> int:
    spark = tg.local_spark(cores=2, app="ladder")
    spark.sparkContext.setLogLevel("OFF")
    try:
        found = list(Ladder(Path(folder), int(rungs)).climb(spark, int(rung)))
    finally:
        spark.stop()
    print(f"ladder: Spark {pyspark.__version__}, {len(found)} differences", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
