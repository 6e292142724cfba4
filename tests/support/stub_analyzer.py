"""A stand-in for Spark's analyzer: it knows the types of computed columns that a test gives it."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidegate.plan.analysis import Typed


class StubAnalyzer:
    """Types of computed columns by name. A column that the test did not name is an error."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self._types = types

    def types(
        self, schema: pa.Schema, alias: str | None, columns: Sequence[tuple[str, str]]
    ) -> list[Typed]:
        known = {**{field.name: field.type for field in schema}, **self._types}
        plain = {name: text.strip("`").rpartition(".")[2] for name, text in columns}
        kinds = [self._types.get(name) or known[plain[name]] for name, _ in columns]
        return [Typed(kind, str(kind)) for kind in kinds]
