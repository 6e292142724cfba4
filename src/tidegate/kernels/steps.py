"""Steps: user functions that map or filter rows, and load shedding, before an operator packs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.columnar import ipc
from tidegate.errors import PlanError, StepError, TypeMismatch
from tidegate.kernels.messages import Message, count_messages
from tidegate.kernels.shedding import Decision, shed
from tidegate.plan.channels import FILTERED, SHED, SHED_ROWS
from tidegate.plan.schema import RESERVED_PREFIX, counterpart, is_known
from tidegate.plan.steps import Filter, Frames, Map, Shed, Step, UserStep


@dataclass
class Passed:
    """Rows after some steps, with the rows that were shed and the counters."""

    rows: pa.Table
    time: str
    decision: Decision | None
    apart: list[pa.Table] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def messages(self, bucket: int) -> Iterator[Message]:
        for rows in self.apart:
            for piece in ipc.pieces(rows):
                yield Message.output(bucket, SHED, piece.num_rows, ipc.encode([piece]))
        yield from count_messages(bucket, self.counts)


def take_steps(
    steps: Sequence[Step], rows: pa.Table, time: str, decision: Decision | None, bucket: int
) -> tuple[pa.Table, list[Message]]:
    """The rows after some steps, and messages of shed rows and counters.

    Rows without an event time skip all steps, so that no function has to expect them. They go to the
    errors channel.
    """
    if not steps:
        return rows, []
    invalid = rows.column(time).is_null()
    known = [name for name in rows.column_names if not name.startswith(RESERVED_PREFIX)]
    passed = Passed(rows.filter(pc.invert(invalid)).select(known), time, decision)
    for step in steps:
        _take(step, passed)
    if pc.any(invalid).as_py():
        others = [name for name in rows.column_names if name == time or name not in known]
        lost = rows.filter(invalid).select(others)
        passed.rows = pa.concat_tables([passed.rows, lost], promote_options="default")
    return passed.rows, list(passed.messages(bucket))


def _take(step: Step, passed: Passed) -> None:
    if isinstance(step, Map):
        passed.rows = _mapped(step, passed.rows, passed.time)
    elif isinstance(step, Filter):
        keep = _kept(step, passed.rows)
        passed.counts[FILTERED] += passed.rows.num_rows - (pc.sum(keep).as_py() or 0)
        passed.rows = passed.rows.filter(keep)
    elif step.policy == "strict" and passed.decision is not None:
        _shed(step, passed, passed.decision)


def _shed(step: Shed, passed: Passed, decision: Decision) -> None:
    goes = pa.array(shed(passed.rows, decision, step.priority))
    gone = passed.rows.filter(goes)
    if gone.num_rows:
        passed.counts[SHED_ROWS] += gone.num_rows
        passed.apart.append(gone)
        passed.rows = passed.rows.filter(pc.invert(goes))


def _mapped(step: Map, rows: pa.Table, time: str) -> pa.Table:
    given = _frame(step, rows)
    if given.num_rows != rows.num_rows:
        raise StepError(
            step,
            f"gave back {given.num_rows} rows for {rows.num_rows}; only a filter may leave rows out",
        )
    if missing := set(step.schema.names) - set(given.column_names):
        raise StepError(step, f"gave back no column {', '.join(map(repr, sorted(missing)))}")
    try:
        result = given.select(step.schema.names).cast(step.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StepError(step, f"gave back other types than it said: {error}") from error
    if not result.column(time).equals(rows.column(time)):
        raise StepError(step, f"changed the event time {time!r}, which the watermark was made from")
    return result


def _kept(step: Filter, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    given = _booleans(step, rows)
    if len(given) != rows.num_rows:
        raise StepError(step, f"gave back {len(given)} booleans for {rows.num_rows} rows")
    return pc.fill_null(given, False)  # as in SQL: a condition that is null drops the row


_WANTED: dict[Frames, str] = {"polars": "a polars.DataFrame", "arrow": "a pyarrow.Table"}


def _frame(step: UserStep, rows: pa.Table) -> pa.Table:
    given = _called(step, rows)
    if not isinstance(given, pa.Table):
        raise StepError(step, f"gave back {_kind(given)}, not {_WANTED[step.frames]}")
    return given


def _booleans(step: UserStep, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    given = _called(step, rows)
    if not isinstance(given, pa.Array | pa.ChunkedArray) or not pa.types.is_boolean(given.type):
        raise StepError(step, f"gave back {_kind(given)}, not a boolean for each row")
    return given


def _called(step: UserStep, rows: pa.Table) -> Any:
    """What a function returns, converted to Arrow if possible."""
    try:
        given = step.function(rows if step.frames == "arrow" else ipc.to_polars(rows))
    except Exception as error:
        raise StepError(step, f"failed: {type(error).__name__}: {error}") from error
    if not isinstance(given, pl.DataFrame | pl.Series):
        return given
    try:
        return ipc.to_arrow(given) if isinstance(given, pl.DataFrame) else given.to_arrow()
    except (pa.ArrowInvalid, pl.exceptions.PolarsError) as error:
        raise StepError(step, f"gave back a type that Arrow cannot hold: {error}") from error


def _kind(given: Any) -> str:
    kind = f" of type {given.type}" if isinstance(given, pa.Array | pa.ChunkedArray) else ""
    return f"{type(given).__name__}{kind}"


def map_step(function: Callable[[Any], Any], frames: Frames, rows: pa.Schema, time: str) -> Map:
    """A map over rows. It is called once without rows, to see which columns it returns."""
    step = Map(function, frames, rows)
    given = _tried(_frame, step, rows)
    schema = _spark_schema(step, given.schema)
    if time not in schema.names or schema.field(time).type != rows.field(time).type:
        raise PlanError(f"{step} must keep the event time {time!r}, which it is called with, as it is")
    return Map(function, frames, schema)


def filter_step(function: Callable[[Any], Any], frames: Frames, rows: pa.Schema) -> Filter:
    """A filter over rows."""
    step = Filter(function, frames, rows)
    _tried(_booleans, step, rows)
    return step


def _tried(call: Callable[[UserStep, pa.Table], Any], step: UserStep, rows: pa.Schema) -> Any:
    try:
        return call(step, rows.empty_table())
    except StepError as error:
        raise PlanError(f"{error}; it was called with no rows, to see what it makes of them") from error


def _spark_schema(step: Map, schema: pa.Schema) -> pa.Schema:
    """The schema that a map returns, in types that Spark has."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise PlanError(f"{step} gave back two columns named {name!r}")
        if not is_known(kind := counterpart(schema.field(name).type)):
            raise TypeMismatch(
                f"{step} gives back: column {name!r} has type {kind}, which Spark has not; cast it"
            )
    made = (pa.field(field.name, counterpart(field.type)) for field in schema)
    return pa.schema([_known(field, step.schema) for field in made])


def _known(field: pa.Field, rows: pa.Schema) -> pa.Field:
    """A column that a function has left as it was, by its name and type, keeps its collation."""
    same = field.name in rows.names and rows.field(field.name).type == field.type
    return field.with_metadata(rows.field(field.name).metadata) if same else field
