"""Rows of output channels that tasks write themselves: once each, wherever they are emitted."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.support.plans import hopping, plan_of
from tidegate.columnar import ipc
from tidegate.connectors import RowType, Stage, StagedSink, Target
from tidegate.dataflow import compile
from tidegate.errors import SinkError
from tidegate.kernels.contract import Outcome
from tidegate.kernels.messages import Kind, Message
from tidegate.kernels.registry import kernels_of
from tidegate.plan.channels import ERRORS
from tidegate.spark.delivery import Delivery, Staging, delivery_of

NUMBERS = pa.schema([("n", pa.int64())])


@dataclass
class Written:
    """A stage that keeps what it is given."""

    files: list[list[int]] = field(default_factory=list)

    def write(self, tables: Iterable[pa.Table]) -> bytes:
        self.files.append([n for table in tables for n in table["n"].to_pylist()])
        return str(len(self.files) - 1).encode()


def staged(**stages: Stage) -> Delivery:
    return Delivery({name: Staging(stage, lambda tables: tables[-1]) for name, stage in stages.items()})


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": values}, schema=NUMBERS)


def test_a_step_writes_one_file_for_a_channel_and_says_how_many_rows_it_has() -> None:
    outcome, main = Outcome(), Written()
    for channel, rows in (("main", numbers(1, 2)), ("late", numbers(9)), ("main", numbers(3))):
        outcome.emit(channel, rows)
    outcome.counts["late_rows"] = 1
    messages = list(outcome.messages(4, 0, staged(main=main).packed))
    assert main.files == [[1, 2, 3]]
    late, results, counter = messages
    assert (late.name, late.rows, ipc.decode(late.blob or b"")) == ("late", 1, [numbers(9)])
    assert (results.kind, results.bucket, results.name) == (Kind.OUTPUT, 4, "main")
    assert (results.rows, results.blob) == (3, b"0")
    assert counter == Message.counter(4, "late_rows", 1)


def test_messages_that_are_packed_already_are_written_and_keep_their_place() -> None:
    errors = Written()
    packed = Message.output(0, "errors", 2, ipc.encode([numbers(5, 6)]))._replace(sender=3, number=7)
    other = Message.input(0, "rows", 1, b"not looked at")
    found = list(staged(errors=errors).again([other, packed]))
    assert found == [other, packed._replace(blob=b"0")]
    assert errors.files == [[5, 6]]


def test_rows_that_another_operator_reads_are_left_to_it() -> None:
    delivery = staged(hours=Written(), late=Written())
    assert delivery.without("hours").channels.keys() == {"late"}
    assert delivery.only("hours").channels.keys() == {"hours"}
    assert delivery.only("days").channels == {}


def test_channels_without_a_sink_and_discarded_ones_are_counted_and_not_even_packed() -> None:
    dataflow = compile(plan_of(hopping(10)))
    sinks = {"main": tg.sinks.discard()}
    delivery = delivery_of(dataflow, kernels_of(dataflow), sinks)
    assert delivery.channels.keys() == {"main", "errors"}
    outcome = Outcome()
    outcome.emit("errors", pa.table([["why"], ["{}"]], schema=ERRORS))
    [message] = outcome.messages(0, 0, delivery.packed)
    assert (message.rows, message.blob) == (1, None)


def test_functions_and_tables_are_left_to_the_driver(tmp_path: Path) -> None:
    dataflow = compile(plan_of(hopping(10)))
    sinks = {"main": tg.sinks.duckdb(tmp_path / "results", "main"), "errors": print}
    assert delivery_of(dataflow, kernels_of(dataflow), sinks).channels == {}


# -- files of Parquet -----------------------------------------------------------------------------

TARGET = Target("query-1", "main", NUMBERS)
ROWS = RowType(NUMBERS, '{"type":"struct","fields":[]}')


def stage_of(folder: Path) -> Stage:
    sink = tg.sinks.parquet(folder)
    assert isinstance(sink, StagedSink)
    stage = sink.stage(ROWS)
    assert stage is not None
    return stage


def rows_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("*.parquet") for n in pq.read_table(file)["n"].to_pylist())


def commit(folder: Path, batch_id: int, *receipts: bytes | None, replayed: int = -1) -> None:
    write = tg.sinks.parquet(folder).prepare(replace(TARGET, replayed=replayed))
    write.commit([one for one in receipts if one is not None], batch_id)


def test_staged_files_count_once_they_are_committed(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    receipts = [stage.write([numbers(1, 2)]), stage.write([numbers(3), numbers(4)])]
    assert rows_in(tmp_path) == []
    commit(tmp_path, 0, *receipts)
    assert rows_in(tmp_path) == [1, 2, 3, 4]


def test_what_other_attempts_staged_is_never_taken_in(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    stage.write([numbers(1)])  # the task was run again, and this attempt lost
    commit(tmp_path, 0, stage.write([numbers(1)]))
    assert rows_in(tmp_path) == [1]
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_replayed_batch_that_was_committed_changes_nothing(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    commit(tmp_path, 0, stage.write([numbers(1)]))
    commit(tmp_path, 0, stage.write([numbers(1)]))
    assert rows_in(tmp_path) == [1]


def test_a_file_that_is_gone_is_no_empty_batch(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="the driver does not see the files that executors wrote"):
        commit(tmp_path, 0, b"gone.parquet")
    assert tg.sinks.parquet(tmp_path).prepare(TARGET).last_batch() is None


def test_every_type_reads_back_as_it_was_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts": pa.array([datetime(2024, 5, 1, 12, 0, 0, 999_999, UTC)], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(1, 1, 1)], pa.timestamp("us")),
            "late_by": pa.array([timedelta(microseconds=-1)], pa.duration("us")),
            "price": pa.array([Decimal("12.50")], pa.decimal128(38, 2)),
            "tags": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "parts": pa.array([[{"x": None}]], pa.list_(pa.struct([("x", pa.float32())]))),
            "payload": pa.array([b"\x00\xff"], pa.binary()),
            "nan": pa.array([float("nan")], pa.float64()),
            "nothing": pa.array([None], pa.string()),
        }
    )
    stage = tg.sinks.parquet(tmp_path).stage(RowType(table.schema, "{}"))
    assert stage is not None
    commit(tmp_path, 0, stage.write([table]))
    [file] = tmp_path.glob("*.parquet")
    found = pq.read_table(file)
    assert found.schema.equals(table.schema)
    assert found.drop_columns("nan").equals(table.drop_columns("nan"))
    assert str(found["nan"][0]) == "nan"


def test_a_driver_that_wakes_up_late_removes_no_file_of_the_new_owner(tmp_path: Path) -> None:
    """It had looked who owns the checkpoint, and was suspended before it committed."""
    late = tg.sinks.parquet(tmp_path).prepare(TARGET)
    receipt = stage_of(tmp_path).write([numbers(1)])
    commit(tmp_path, 0, stage_of(tmp_path).write([numbers(1)]))
    (tmp_path / "_tidegate_batches").rename(tmp_path / "later")  # as if it had read the metadata before
    with pytest.raises(SinkError, match="the driver does not see the files"):
        late.commit([receipt], 0)
    assert rows_in(tmp_path) == [1]
