"""Draining: what a stopped query still holds goes out, and is remembered as having gone out.

The state is read as Spark stored it, and the same kernels run over it as over a batch: to them the
stream is over. The checkpoint stays as it is, so the next start goes on from there. What was drained
is written down beside the checkpoint: a result that comes out again unchanged is left out then, and
changes (`op`) are taken back first, so that the table is again what the checkpoint says it is.

Unchanged means: as it went out last. So of windows that were drained, results that may be corrected
later are written down as well, by each batch that has some. A batch is compared with what those before
it wrote down: one that is replayed is compared with the same rows again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from math import inf
from operator import and_

from pyarrow import fs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.connectors import Write, for_spark
from tidegate.connectors.notes import numbers_in, read_note, write_note
from tidegate.plan.channels import MAIN, OP
from tidegate.plan.nodes import Output
from tidegate.plan.passages import Reorder
from tidegate.plan.policies import OnWatermark
from tidegate.spark.checkpoint import held_batches, last_batch, stored_format, stored_pages
from tidegate.spark.crossing import MESSAGE
from tidegate.spark.event_time import quoted
from tidegate.spark.lower import Lowered, merge_batch, page_messages, through
from tidegate.spark.session import SAFE_FORMAT, state_format

_FOLDER = "tidegate.drained"
_SINCE = "since"
_PLACE, _LAST = "__tidegate_place", "__tidegate_last"
_UNDO = {"+I": "-D", "+U": "-U", "-U": "+U", "-D": "+I"}


@dataclass
class Extra:
    """A write to the main sink that no micro-batch made: after which one it came, and of what."""

    after: int
    rows: str
    undoes: bool = False
    applied: bool = False


@dataclass
class Drained:
    """What was drained from a checkpoint so far.

    Sinks know batches by number, and take each once. Extra writes have numbers between those of
    batches: all that come later are moved up by one for each.
    """

    checkpoint: str
    extras: list[Extra] = field(default_factory=list)

    @classmethod
    def of(cls, checkpoint: str) -> Drained:
        extras = read_note(_note(checkpoint), lambda note: [Extra(**entry) for entry in note])
        return cls(checkpoint, extras or [])

    def number_of(self, batch_id: int) -> int:
        """The number by which sinks know a micro-batch."""
        return batch_id + sum(extra.after < batch_id for extra in self.extras)

    def folder_of(self, extra: Extra) -> str:
        return posixpath.join(self.checkpoint, _FOLDER, extra.rows)

    def add(self, extra: Extra) -> None:
        self.extras.append(extra)
        self._save()

    def apply(self, spark: SparkSession, write: Write) -> None:
        """Write what has not been written yet; sinks take each number once, so again is harmless."""
        for place, extra in enumerate(self.extras):
            if not extra.applied:
                rows = spark.read.parquet(for_spark(self.folder_of(extra)))
                write(_undone(rows) if extra.undoes else rows, extra.after + 1 + place)
                extra.applied = True
                self._save()

    def undo(self) -> None:
        """Take back, on the next `apply`, what was drained and has not been taken back yet."""
        # After a repair the sink has batches that the checkpoint is yet to run again.
        after = max([last_batch(self.checkpoint), *held_batches(self.checkpoint)])
        for extra in self.not_undone():
            self.add(Extra(after, extra.rows, undoes=True))

    def not_undone(self) -> list[Extra]:
        undone = {extra.rows for extra in self.extras if extra.undoes}
        return [extra for extra in self.extras if extra.rows not in undone]

    def rows(self, spark: SparkSession) -> list[DataFrame]:
        """The rows of each drain."""
        return [spark.read.parquet(for_spark(self.folder_of(extra))) for extra in self.extras]

    def since(self, spark: SparkSession, batch_id: int) -> list[DataFrame]:
        """What batches before this one have put out last of that which had been drained, if anything."""
        newest = [for_spark(self._since(number)) for number in self._kept(batch_id)[-1:]]
        return [spark.read.parquet(folder) for folder in newest]

    def keep(self, rows: DataFrame, batch_id: int) -> None:
        """Write down what this batch and those before it have put out last of that."""
        rows.write.mode("overwrite").parquet(for_spark(self._since(batch_id)))
        for number in self._kept(batch_id)[:-1]:  # a replay still needs the one before
            filesystem, folder = fs.FileSystem.from_uri(self._since(number))
            filesystem.delete_dir(folder)

    def _kept(self, before: int) -> list[int]:
        return [number for number in numbers_in(self._since()) if number < before]

    def _since(self, *batch: int) -> str:
        return posixpath.join(self.checkpoint, _FOLDER, _SINCE, *map(str, batch))

    def _save(self) -> None:
        write_note(_note(self.checkpoint), [asdict(extra) for extra in self.extras])


@dataclass
class Drain:
    """Draining for one start of a query that has one result."""

    lowered: Lowered
    spark: SparkSession
    drained: Drained
    write: Write
    #: What was drained, and when the last of it is over.
    _drained: list[DataFrame] = field(default_factory=list)
    _horizon: float = 0

    @property
    def plan(self) -> Output:
        return self.lowered.dataflow.outputs[MAIN].operator

    def run(self) -> None:
        """Put out what the stopped query holds. A crash on the way is made good by the next start."""
        after = last_batch(self.drained.checkpoint)
        if after < 0 or (self.plan.retracts and self.drained.not_undone()):
            return
        extra = Extra(after, f"{after}-{len(self.drained.extras)}")
        with state_format(self.spark, stored_format(self.drained.checkpoint) or SAFE_FORMAT):
            rows = self._open_rows()
            if self.drained.extras and not self.plan.retracts:
                # What is open still has not come out but by drains.
                rows = rows.exceptAll(_last_of_each(self.drained.rows(self.spark), self.plan))
            in_order = rows.orderBy(_time(self.plan))
            in_order.write.mode("overwrite").parquet(for_spark(self.drained.folder_of(extra)))
        self.drained.add(extra)
        self.drained.apply(self.spark, self.write)

    def resume(self) -> None:
        """Make good what an earlier run left undone, and take back changes that were drained."""
        if self.plan.retracts:
            self.drained.undo()
        self.drained.apply(self.spark, self.write)
        if self.drained.extras and not self.plan.retracts:
            drained = self.drained.rows(self.spark)
            last = _last_time(reduce(DataFrame.unionAll, drained), self.plan)
            if last is not None:
                self._drained, self._horizon = drained, self._never_heard_of_again(last)

    def _never_heard_of_again(self, time: int) -> float:
        """The watermark of the sources after which no result at that time, or before, is mentioned."""
        vertex = self.lowered.dataflow.outputs[MAIN]
        stays = vertex.operator.stays
        return inf if stays is None else time + vertex.delay + stays + 1

    def between(self, writes: Mapping[str, Write], passed: Callable[[], int | None]) -> dict[str, Write]:
        """Writes of micro-batches, each in its place among those of draining. `passed` is W."""

        def numbered(write: Write) -> Write:
            return lambda rows, batch_id: write(rows, self.drained.number_of(batch_id))

        def results(rows: DataFrame, batch_id: int) -> None:
            numbered(self.write)(self._without_drained(rows, batch_id, passed()), batch_id)

        return {name: numbered(write) for name, write in writes.items()} | {MAIN: results}

    def _without_drained(self, rows: DataFrame, batch_id: int, passed: int | None) -> DataFrame:
        """Results without those that are out already, just as they are."""
        if not self._drained or (passed is not None and passed > self._horizon):
            return rows  # what was drained has closed since, and is never mentioned again
        out = self._drained
        if _corrects(self.plan):
            since = self.drained.since(self.spark, batch_id)
            put_out = _of_the_same(rows, self._drained, self.plan)
            if not put_out.isEmpty():
                self.drained.keep(_last_of_each([*since, put_out], self.plan), batch_id)
            out = out + since
        rest = rows.exceptAll(_last_of_each(out, self.plan))
        return rest.orderBy(_time(self.plan)) if self.plan.kind == Reorder.kind else rest

    def _open_rows(self) -> DataFrame:
        """What would come out if the stream were over: the state of each operator, run to its end."""
        # Spark numbers operators from the end of the query.
        last = len(self.lowered.kernels) - 1

        def with_pages(number: int, messages: DataFrame) -> DataFrame:
            pages = stored_pages(self.spark, self.drained.checkpoint, last - number)
            return messages.unionAll(page_messages(pages))

        nothing = self.spark.createDataFrame([], MESSAGE)
        packed = through(self.lowered, lambda *_: nothing, merge_batch, with_pages)
        return self.lowered.channel(MAIN, packed)


def _note(checkpoint: str) -> str:
    return posixpath.join(checkpoint, _FOLDER, "note.json")


def _identity(plan: Output) -> list[str]:
    """The columns that tell results apart, quoted; none where each row stands for itself."""
    return [quoted(name) for name in plan.result_key]


def _corrects(plan: Output) -> bool:
    """May a result that was put out when it was due come again?"""
    on_watermark = plan.identity().get("emission") == OnWatermark().identity()
    return on_watermark and any(rows.lateness > 0 for rows in plan.inputs)


def _last_of_each(out: list[DataFrame], plan: Output) -> DataFrame:
    """What is out: of rows with an identity the one that came last, of others all."""
    if not _identity(plan):
        return reduce(DataFrame.unionAll, out)
    in_turn = [rows.withColumn(_PLACE, F.lit(place)) for place, rows in enumerate(out)]
    whole = F.struct(*(F.col(quoted(name)) for name in out[0].columns))
    by_identity = reduce(DataFrame.unionAll, in_turn).groupBy(*_identity(plan))
    return by_identity.agg(F.max_by(whole, _PLACE).alias(_LAST)).select(f"{_LAST}.*")


def _of_the_same(rows: DataFrame, drained: list[DataFrame], plan: Output) -> DataFrame:
    """The rows whose identity is among those that were drained."""
    among = reduce(DataFrame.unionAll, drained)
    same = reduce(and_, (rows[name].eqNullSafe(among[name]) for name in _identity(plan)))
    return rows.join(among, same, "left_semi")


def _undone(rows: DataFrame) -> DataFrame:
    """The opposite of each change, the last one first."""
    pairs = [F.lit(text) for pair in _UNDO.items() for text in pair]
    return rows.withColumn(OP.name, F.create_map(*pairs)[F.col(OP.name)]).orderBy(F.desc(OP.name))


def _time(plan: Output) -> Column:
    """What rows are in the order of."""
    times = [F.col(quoted(name)).cast("timestamp") for name in plan.order]
    return F.coalesce(*times, F.lit(None).cast("timestamp"))  # running folds have none


def _last_time(rows: DataFrame, plan: Output) -> int | None:
    latest = [F.max(F.unix_micros(F.col(quoted(name)).cast("timestamp"))) for name in plan.order]
    found = rows.agg(*latest).head()
    return max((time for time in found or () if time is not None), default=None)
