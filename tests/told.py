"""An analyzer for tests that start no Spark: it knows the types that the test tells it."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidegate.plan.analysis import Typed


class Told:
    """Types of computed columns by name. What is not told, nobody should have asked for."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self._types = types

    def types(
        self, schema: pa.Schema, alias: str | None, columns: Sequence[tuple[str, str]]
    ) -> list[Typed]:
        known = {**{field.name: field.type for field in schema}, **self._types}
        plain = {name: text.strip("`").rpartition(".")[2] for name, text in columns}
        kinds = [self._types.get(name) or known[plain[name]] for name, _ in columns]
        return [Typed(kind, str(kind)) for kind in kinds]
