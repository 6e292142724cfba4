"""Bytes that leave a process come back as they were, or not at all."""

import math

import polars as pl
import pyarrow as pa
import pytest

from tidegate.columnar import ipc
from tidegate.errors import StateError

TABLES = [
    pa.table({"a": pa.array([1, None, 3]), "b": pa.array(["x", "", None])}),
    pa.table({"c": pa.array([], pa.float64())}),
    pa.table({"d": pa.array([[1, 2], [], None])}),
]


def test_tables_survive_the_journey():
    back = ipc.decode(ipc.encode(TABLES))
    assert back == TABLES
    assert [table.schema for table in back] == [table.schema for table in TABLES]


def test_columns_that_are_the_same_are_written_once():
    values = pa.array([0.1 * i for i in range(1000)])
    ones = pa.array([1] * 1000)
    table = pa.table({"n": ones, "price": values, "sum.n": ones, "sum": values, "max": values})
    blob = ipc.encode([table])
    assert len(blob) < len(ipc.encode([table.select(["n", "price"])])) + 500
    assert ipc.decode(blob) == [table]
    assert ipc.decode(blob)[0].schema == table.schema


def test_zeros_of_either_sign_and_numbers_of_other_types_stay_as_they_are():
    zeros = pa.table({"a": [0.0], "b": [-0.0], "c": [0], "d": pa.array([0], pa.int8()), "e": [math.nan]})
    [back] = ipc.decode(ipc.encode([zeros]))
    assert back.schema == zeros.schema
    assert str(back.to_pylist()) == str(zeros.to_pylist())


def test_no_tables_are_a_blob_too():
    assert ipc.decode(ipc.encode([])) == []


def test_a_slice_is_written_without_the_rest():
    table = pa.table({"a": list(range(100_000))})
    blob = ipc.encode([table.slice(70_000, 3)])
    assert len(blob) < 5_000
    assert ipc.decode(blob)[0].to_pylist() == [{"a": 70_000}, {"a": 70_001}, {"a": 70_002}]


@pytest.mark.parametrize(("blob", "found"), [(b"", "nothing"), (b"\x00abc", "0"), (b"\x7f", "127")])
def test_another_format_is_refused(blob, found):
    expected = f"stored in format {found}, but this version reads format {ipc.VERSION}"
    with pytest.raises(StateError) as error:
        ipc.decode(blob)
    assert str(error.value) == expected


def test_a_blob_cut_short_anywhere_is_refused():
    """Only a cut between two tables cannot be told from a shorter blob."""
    whole = ipc.encode(TABLES)
    between = {len(ipc.encode(TABLES[:count])) for count in range(len(TABLES))}
    for length in range(1, len(whole)):
        if length in between:
            assert ipc.decode(whole[:length]) == TABLES[: sorted(between).index(length)]
        else:
            with pytest.raises(StateError, match="cut short"):
                ipc.decode(whole[:length])


def test_pieces_stay_below_the_limit(monkeypatch):
    table = pa.table({"a": list(range(1000))})
    monkeypatch.setattr(ipc, "MAX_BYTES", 1000)
    pieces = list(ipc.pieces(table))
    assert len(pieces) == 8
    assert pa.concat_tables(pieces).combine_chunks() == table.combine_chunks()
    assert all(piece.nbytes <= 1000 for piece in pieces)


def test_a_row_larger_than_the_limit_still_leaves(monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 10)
    table = pa.table({"a": ["x" * 100, "y" * 100]})
    assert [piece.num_rows for piece in ipc.pieces(table)] == [1, 1]
    assert list(ipc.pieces(table.slice(0, 0))) == []


def test_arrow_and_polars_agree():
    frame = pl.DataFrame({"a": [1, None], "b": ["x", None], "c": [[1.5], []]})
    assert ipc.to_polars(ipc.to_arrow(frame)).equals(frame)
    assert ipc.to_arrow(frame).schema.field("b").type == pa.large_string()  # what every Arrow reads
