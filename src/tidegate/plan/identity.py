"""What checkpoints know plans by: plain JSON values under registered names, never where a class lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from math import isfinite
from typing import Any, ClassVar

import pyarrow as pa

#: What a part of a plan says of itself, as JSON values.
Values = dict[str, Any]

_REGISTERED: dict[str, type[Registered]] = {}


class Registered:
    """A frozen dataclass that checkpoints know by a registered name and its fields.

    The name and the names of the fields are written down: they stay, wherever the class moves.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            assert cls.kind not in _REGISTERED, f"{cls.kind} is registered twice"
            _REGISTERED[cls.kind] = cls

    def identity(self) -> Values:
        own = {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **own}


def read_back(values: Values) -> Registered | None:
    """The value that is written down; None if this version knows none of that name and those fields."""
    given = {name: value for name, value in values.items() if name != "kind"}
    kind = _REGISTERED.get(values["kind"])
    known = kind is not None and given.keys() == {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**given) if kind is not None and known else None


def plain(value: object) -> Any:
    """The value as it comes back from JSON; what JSON has no form for goes by its text."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    known = value is None or isinstance(value, bool | int | str)
    return value if known or (isinstance(value, float) and isfinite(value)) else str(value)


def typed(schema: pa.Schema, names: Iterable[str]) -> list[Values]:
    """Columns with their types, in order."""
    return [{"name": name, "type": str(schema.field(name).type)} for name in names]
