"""What differs between versions of Spark is in one module, and what is missing is told."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyspark
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import IntegerType, StructType, YearMonthIntervalType

import tidegate
from tidegate.connectors.file_splits import BEGINNING, Folder, Lines, after_all
from tidegate.errors import PlanError, SourceError, StartError
from tidegate.kernels.messages import KEPT, Message
from tidegate.spark import query
from tidegate.spark import schema as schemas
from tidegate.spark.checkpoint.metadata import stored_operator
from tidegate.spark.host import message_row
from tidegate.spark.pandas_frames import frames_of, rows_in
from tidegate.spark.processor import PandasKernelProcessor
from tidegate.spark.query import OpenedCheckpoint
from tidegate.spark.sources import folder as folders
from tidegate.spark.sources.clock import ClockReader, Settings, rows_between
from tidegate.spark.versions import Capability, state_api

PACKAGE = Path(tidegate.__file__).parent
ONE_MODULE = "spark/versions.py"

#: A version of Spark as a text, or what one would ask for it.
VERSIONS = re.compile(
    r"""["']\d\.\d(\.\d+)?["']|__version__|spark\.version\b|version_info|LooseVersion"""
)
#: What only some versions have, by the names of their APIs.
APIS = re.compile(
    r"transformWithState\b|ReadLimit|SupportsTriggerAvailableNow|to_arrow_type|from_arrow_schema"
)


def uses(pattern: re.Pattern[str], root: Path) -> list[str]:
    files = (file for file in sorted(root.rglob("*.py")) if file != root / ONE_MODULE)
    return [
        f"{file.relative_to(root).as_posix()}: {found[0]}"
        for file in files
        for found in pattern.finditer(_code(file.read_text("utf-8")))
    ]


def _code(text: str) -> str:
    """Without docstrings and comments, in which versions may be told."""
    return re.sub(r'"""[\s\S]*?"""|#[^\n]*', "", text)


def test_one_module_knows_of_versions():
    # The version of tidegate itself is shown by the command.
    assert [use for use in uses(VERSIONS, PACKAGE) if not use.startswith("cli/")] == []
    assert uses(APIS, PACKAGE) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if pyspark.__version__ > limit: ...", ["__version__"]),
        ("if version == '4.1': ...", ["'4.1'"]),
        ('old = version < "4.0.5"', ['"4.0.5"']),
        ("if spark.version: ...", ["spark.version"]),
        ("# since '4.1'", []),
        ('"""Came with "4.1"."""', []),
        ("ratio = 4.1", []),
    ],
)
def test_a_version_elsewhere_is_found(tmp_path, text, found):
    (tmp_path / "spark").mkdir()
    for name in ("lower.py", "versions.py"):
        (tmp_path / "spark" / name).write_text(text, "utf-8")
    assert uses(VERSIONS, tmp_path) == [f"spark/lower.py: {one}" for one in found]


def test_what_is_missing_is_refused_with_the_version_that_has_it():
    Capability("4.2", here=True).require("a pace", "leave it out")
    expected = f"a pace needs Spark 4.2 or newer, and this is Spark {pyspark.__version__}: leave it out"
    for error in (PlanError, StartError):
        with pytest.raises(error, match=re.escape(expected)):
            Capability("4.2", here=False).require("a pace", "leave it out", error)


@pytest.mark.parametrize("limit", ["max_rows", "max_files", "pace"])
def test_limits_of_folders_are_refused_where_spark_has_none(monkeypatch, limit):
    monkeypatch.setattr(folders, "ADMISSION_CONTROL", Capability("4.2", here=False))
    given = tidegate.pace("1 s") if limit == "pace" else 3
    with pytest.raises(PlanError) as refusal:
        folders.Limits(**{limit: given})
    assert str(refusal.value) == (
        f"read_folder({limit}=…) needs Spark 4.2 or newer, and this is Spark {pyspark.__version__}: "
        "leave it out, and a batch has all files that are there; or read with spark.readStream, whose "
        "option maxFilesPerTrigger limits the files of a batch"
    )
    folders.Limits()


# -- types ----------------------------------------------------------------------------------------


def test_a_call_that_spark_does_not_take_is_no_missing_type(monkeypatch):
    """On one version an argument too many made every column null."""

    def refuses(kind: Any) -> Any:
        raise TypeError("to_arrow_type() got an unexpected keyword argument 'timezone'")

    monkeypatch.setattr(schemas, "arrow_type", refuses)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        schemas.arrow_schema(StructType().add("n", IntegerType()))


def test_a_type_that_arrow_does_not_have_is_a_null_column():
    found = schemas.arrow_schema(StructType().add("n", IntegerType()).add("w", YearMonthIntervalType()))
    assert [str(kind) for kind in found.types] == ["int32", "null"]


# -- state ----------------------------------------------------------------------------------------


def test_a_checkpoint_keeps_the_method_that_it_was_begun_with():
    assert state_api("transformWithStateInPandasExec").method == "transformWithStateInPandas"
    assert state_api("transformWithStateInPySparkExec").method == "transformWithState"
    assert state_api().method == "transformWithState"


def test_the_operator_of_a_checkpoint_is_read_from_its_latest_metadata(tmp_path):
    assert stored_operator(tmp_path.as_uri()) is None
    folder = tmp_path / "state" / "0" / "_metadata" / "v2"
    folder.mkdir(parents=True)
    for batch, name in ((2, "before"), (10, "now")):
        told = json.dumps({"operatorInfo": {"operatorId": 0, "operatorName": name}})
        (folder / str(batch)).write_text(f"v2\n{told}")
    assert stored_operator(tmp_path.as_uri()) == "now"


MESSAGES = [
    Message.input(3, "partials", 7, b"\x00rows").addressed_to(1)._replace(sender=2, number=5),
    Message.output(3, "late", 1, None),
    Message.counter(3, "rows_in", 2**53 - 1),
    Message.high_water_mark(3, 0, 1_714_564_800_000_001),
    Message.state(3, 1, dict.fromkeys(KEPT) | {"rows": 5, "watermark": 1_714_564_800_000_001}),
]


def test_messages_are_the_same_after_pandas():
    [frame] = frames_of(map(message_row, MESSAGES))
    # As Spark hands it over: numbers beside nulls are floats, and columns have no names.
    given = pd.DataFrame({place: frame[name].tolist() for place, name in enumerate(frame.columns)})
    assert given[5].dtype == float
    assert [Message(*row) for row in rows_in(given)] == MESSAGES
    assert all(type(row.bucket) is int for row in rows_in(given))
    assert list(frames_of([])) == []


def test_a_processor_of_frames_is_the_processor_of_rows(monkeypatch):
    class Host:
        def on_rows(self, bucket: int, rows: Any, times: Any) -> Any:
            return (row for row in rows if row.kind == "output")

        def on_timer(self, bucket: int, times: Any, fired: int) -> Any:
            yield message_row(Message.counter(bucket, "fired", fired))

    processor = PandasKernelProcessor(SimpleNamespace(), "operator", "plan")
    monkeypatch.setattr(processor, "_opened", Host)
    frames = [next(frames_of([message_row(one)])) for one in MESSAGES]
    [passed] = processor.handleInputRows((3,), iter(frames), None)
    assert [Message(*row) for row in rows_in(passed)] == [MESSAGES[1]]
    timer = SimpleNamespace(getExpiryTimeInMs=lambda: 9)
    [fired] = processor.handleExpiredTimer((3,), None, timer)
    assert [Message(*row) for row in rows_in(fired)] == [Message.counter(3, "fired", 9)]


# -- sources that are not told where a batch starts -----------------------------------------------


@pytest.fixture
def lines(tmp_path):
    for name in ("1.json", "2.json", "10.json"):
        (tmp_path / name).write_text(f"{name} a\n{name} b\n")
    return tmp_path


def read(folder: Folder, batch: list[Any]) -> list[str]:
    return [
        line.decode().strip()
        for pieces in batch
        for rows in folder.read(pieces)
        for line in rows.column("value").to_pylist()
    ]


def test_what_is_between_two_offsets_is_read(lines):
    folder = Folder(lines.as_uri(), Lines())
    first = after_all(["1.json"])
    end = after_all(folder.names())
    assert end == after_all(folder.names())
    assert read(folder, folder.between(BEGINNING, first, [100])) == ["1.json a", "1.json b"]
    rest = ["2.json a", "2.json b", "10.json a", "10.json b"]
    assert read(folder, folder.between(first, end, [3, 3])) == rest
    (lines / "3.json").write_text("later\n")
    assert read(folder, folder.between(first, end, [3, 3])) == rest


def test_a_batch_goes_on_in_the_middle_of_a_file(lines):
    """As an offset of a version with limits has it."""
    folder = Folder(lines.as_uri(), Lines())
    start, rows = folder.take(BEGINNING, folder.names(), [3])
    assert rows == 3
    rest = ["2.json b", "10.json a", "10.json b"]
    assert read(folder, folder.between(start, after_all(folder.names()), [100])) == rest


def test_a_version_with_limits_goes_on_from_an_offset_without_pieces(lines):
    folder = Folder(lines.as_uri(), Lines())
    end, rows = folder.take(after_all(["1.json", "10.json"]), folder.names(), [100])
    assert rows == 2
    assert read(folder, end["batch"]) == ["2.json a", "2.json b"]


def test_a_file_that_is_gone_is_missed(lines):
    folder = Folder(lines.as_uri(), Lines())
    first, end = after_all(["1.json"]), after_all(folder.names())
    (lines / "1.json").unlink()
    assert len(read(folder, folder.between(first, end, [100]))) == 4
    (lines / "2.json").unlink()
    with pytest.raises(SourceError, match="1 files are gone, and rows of them belong to a batch"):
        folder.between(first, end, [100])


def test_a_reader_of_a_folder_needs_no_start(lines):
    settings = folders.Settings(lines.as_uri(), "json", header=False, tasks=2)
    reader = folders.FolderReader(settings, Lines())
    assert isinstance(reader, DataSourceStreamReader)
    end = reader.next_offset(None, everything=True)
    assert json.loads(json.dumps(end)) == after_all(["1.json", "2.json", "10.json"])
    [partition] = reader.partitions(after_all(["1.json"]), end)
    assert read(Folder(lines.as_uri(), Lines()), [partition.value])[0] == "2.json a"
    assert reader.partitions(end, end) == []


def test_the_clock_needs_no_start():
    now = 5_000
    reader = ClockReader(Settings(tick=1_000), now=lambda: now)
    first = reader.next_offset(None, everything=True)
    assert rows_between({"tick": 3_000, "levels": {"1": 7}}, first) == [(-1, None)]
    now = 4_000  # a wall clock that is set back
    assert reader.next_offset(None, everything=True) == first


def test_before_batches_over_connect_have_own_settings_state_has_the_sessions_format(monkeypatch):
    new = OpenedCheckpoint("file:///c", SimpleNamespace(), None, None, -1, None)
    client = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    client.conf = SimpleNamespace(get=lambda *_: "1")
    monkeypatch.setattr(query, "BATCH_SETTINGS_OVER_CONNECT", Capability("4.3", here=False))
    assert new.format_in(client) == replace(new, format=1).format_in(client) == 1
    assert replace(new, format=2).format_in(SimpleNamespace()) == 2
    with pytest.raises(StartError, match=r"in Spark's format 2, .* needs Spark 4\.3 or newer, .*set "):
        replace(new, format=2).format_in(client)
    monkeypatch.setattr(query, "BATCH_SETTINGS_OVER_CONNECT", Capability("4.3", here=True))
    assert replace(new, format=2).format_in(client) == 2
