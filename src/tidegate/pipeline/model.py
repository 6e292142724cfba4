"""What a pipeline file may say. Every model refuses keys it does not know.

A choice is a name (`emit: changelog`), or a mapping with one (`window: {tumbling: 1 minute}`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, LiteralString, Union, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from tidegate.errors import did_you_mean
from tidegate.kernels.aggregate_registry import AGGREGATES, parameters_of
from tidegate.pipeline.declared import (
    DurationText,
    function_model,
    reader_options,
    sink_models,
    stream_model,
)

#: An option of a connector, as Spark takes it.
OptionValue = str | int | float | bool


class Model(BaseModel):
    """A mapping with known keys."""

    # Validators are built for the whole file at once: those of its parts alone are never needed.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, given: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in given if key not in known] if isinstance(given, dict) else []
        if unknown:
            raise PydanticCustomError(
                "unknown_key",
                "unknown key {shown}; {hint}",
                {
                    "key": unknown[0],
                    "shown": repr(unknown[0]),
                    "hint": did_you_mean(str(unknown[0]), known),
                },
            )
        return given


def _choice(*kinds: str, names: tuple[str, ...] = ()) -> Discriminator:
    """Tells models apart by the key that only one of them has; a bare name stands for itself."""

    def choose(given: Any) -> str | None:
        if isinstance(given, str):
            return "<name>"
        keys = given if isinstance(given, dict) else _set_in(given)
        return next((f"<{kind}>" for kind in kinds if kind in keys), None)

    return Discriminator(
        choose,
        custom_error_type="no_such_choice",
        custom_error_message=", ".join((*names, *kinds)),  # what there is: `file` makes a hint of it
    )


def _set_in(given: Any) -> Iterable[str]:
    return given.model_fields_set if isinstance(given, BaseModel) else ()


# -- windows and what is done with them ------------------------------------------------------------


class Tumbling(Model):
    """Windows of one size, end to end."""

    tumbling: DurationText
    offset: DurationText = "0 s"


class Hopping(Model):
    """Windows of one size that start every `slide`."""

    hopping: DurationText
    slide: DurationText
    offset: DurationText = "0 s"


class Session(Model):
    """Rows of a key at most a gap apart."""

    session: DurationText
    max_length: DurationText | None = None


class SessionByColumn(Model):
    """Rows of a key at most a gap apart, where a column holds each row's own gap."""

    session_by: str
    max_length: DurationText | None = None


class Sliding(Model):
    """Around each row the rows from so long before it to so long after it."""

    sliding: DurationText
    lookahead: DurationText | None = None
    when: str | None = None


Window = Annotated[
    Annotated[Tumbling, Tag("<tumbling>")]
    | Annotated[Hopping, Tag("<hopping>")]
    | Annotated[Session, Tag("<session>")]
    | Annotated[SessionByColumn, Tag("<session_by>")]
    | Annotated[Sliding, Tag("<sliding>")],
    _choice("tumbling", "hopping", "session", "session_by", "sliding"),
]


class Reassign(Model):
    """Late rows move to the watermark, if they are at most this late."""

    reassign: DurationText


class SideOutput(Model):
    """Late rows go to a channel of their own."""

    side_output: str


Late = Annotated[
    Annotated[Literal["drop"], Tag("<name>")]
    | Annotated[Reassign, Tag("<reassign>")]
    | Annotated[SideOutput, Tag("<side_output>")],
    _choice("reassign", "side_output", names=("drop",)),
]


class Periodic(Model):
    """Changes, at most once an interval for each window."""

    periodic: DurationText


EmissionName = Literal["on_watermark", "on_window_close", "final", "on_update", "changelog"]

Emission = Annotated[
    Annotated[EmissionName, Tag("<name>")] | Annotated[Periodic, Tag("<periodic>")],
    _choice("periodic", names=get_args(EmissionName)),
]


class BaseFunction(Model):
    """An aggregate of a column: one function, and the parameters that belong to it."""

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields_set - AGGREGATES.keys()}

    @property
    def name(self) -> str:
        [name] = self.model_fields_set & AGGREGATES.keys()
        return name

    @model_validator(mode="after")
    def _one_function(self) -> BaseFunction:
        if len(self.model_fields_set & AGGREGATES.keys()) != 1:
            raise PydanticCustomError("one_function", "an aggregate is one function of one column")
        known = {parameter.name: parameter for parameter in parameters_of(AGGREGATES[self.name])}
        for name in self.parameters.keys() - known:
            raise _no_function("{name} has no parameter {parameter}", self.name, name)
        for name, parameter in known.items():
            if parameter.required and name not in self.parameters:
                needed = f"{name}, {parameter.meaning}"
                raise _no_function("{name} needs {parameter}", self.name, needed)
        return self


def _no_function(message: LiteralString, name: str, parameter: str) -> PydanticCustomError:
    return PydanticCustomError("one_function", message, {"name": name, "parameter": parameter})


if TYPE_CHECKING:
    Function = BaseFunction
else:
    Function = function_model(BaseFunction)

Aggregate = Annotated[
    Annotated[Literal["count"], Tag("<name>")] | Annotated[Function, Tag("<function>")],
    Discriminator(lambda given: "<name>" if isinstance(given, str) else "<function>"),
]


class WindowOperator(Model):
    """Aggregates over windows. `time` is the column by which results of the operator before go on."""

    time: str | None = None
    key_by: list[str] = []
    window: Window
    allowed_lateness: DurationText = "0 s"
    late: Late = "drop"
    aggregates: dict[str, Aggregate]
    emit: Emission = "on_watermark"


class ReorderOperator(Model):
    """Rows in the order of event time, of each key or of all."""

    reorder: Literal[True]
    time: str | None = None
    key_by: list[str] = []
    late: Late = "drop"


def _which_operator(given: Any) -> str:
    keys = given if isinstance(given, dict) else _set_in(given)
    return "<reorder>" if "reorder" in keys else "<window>"


Operator = Annotated[
    Annotated[WindowOperator, Tag("<window>")] | Annotated[ReorderOperator, Tag("<reorder>")],
    Discriminator(_which_operator),
]


class Query(Model):
    """Rows of one stream, or of several together, through operators."""

    source: str | list[str] = Field(alias="from")
    where: str | None = None
    operators: list[Operator] = Field(min_length=1)


# -- where rows come from and go to ----------------------------------------------------------------


class EventTime(Model):
    """Which column holds the event time and how it is read; what this stream allows for."""

    column: str
    type: str | None = None
    tolerance: DurationText | None = None
    max_future: DurationText | None = None
    idle_after: DurationText | None = None


class BaseStream(Model):
    """Rows, by a connector: its columns with the names of Spark's types, its options."""

    connector: str
    columns: dict[str, str] | None = None
    eventtime: EventTime | None = None
    options: dict[str, OptionValue] = Field({}, json_schema_extra=reader_options())

    @property
    def own_options(self) -> dict[str, Any]:
        """The options that are keys of the stream."""
        return self.model_dump(exclude=set(BaseStream.model_fields))


class Sink(Model):
    """Where the rows of a channel go: a model for each connector."""

    connector: str


#: The models that connectors declare.
if TYPE_CHECKING:
    Stream = BaseStream
    AnySink = Sink
else:
    Stream = stream_model(BaseStream)
    AnySink = Annotated[Union[*sink_models(Sink)], Field(discriminator="connector")]


class Options(Model):
    """What holds for the whole pipeline."""

    enabled: bool = Field(True, alias="eventtime.enabled")
    tolerance: DurationText = Field("0 s", alias="eventtime.lateTolerance")


class Every(Model):
    """A micro-batch so often."""

    every: DurationText


Trigger = Annotated[
    Annotated[Literal["once"], Tag("<name>")] | Annotated[Every, Tag("<every>")],
    _choice("every", names=("once",)),
]


class Pipeline(Model):
    """A pipeline: streams, a query as SQL or as operators, a sink for each channel."""

    name: str | None = None
    streams: dict[str, Stream]
    options: Options = Options.model_validate({})
    sql: str | None = None
    query: Query | None = None
    sinks: dict[str, AnySink]
    checkpoint: str
    trigger: Trigger | None = None

    @model_validator(mode="after")
    def _one_program(self) -> Pipeline:
        if (self.sql is None) == (self.query is None):
            raise PydanticCustomError("one_program", "give either 'sql' or 'query', and not both")
        return self
