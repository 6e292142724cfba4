"""Columns of a schema: found by name, checked for what they are used for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidegate.errors import ColumnNotFound, PlanError, Term, TypeMismatch, did_you_mean

#: What names of our own columns start with.
RESERVED_PREFIX = "__tidegate"

TIMESTAMP = pa.timestamp("us", tz="UTC")

#: Metadata of fields: by which collation Spark compares their text, if it does not compare bytes.
_COLLATION = b"collation"

#: Metadata of fields of structs that stand for a type which Arrow has none for.
_MARKED_STRUCTS = {b"variant", b"geometry", b"geography"}


def field_of(schema: pa.Schema, name: object, what: str) -> pa.Field:
    """The field, or an error that says what was looked for and what there is."""
    if not isinstance(name, str):
        raise PlanError(f"{what}: a column is given by its name, not {name!r}")
    if name not in schema.names:
        raise ColumnNotFound(f"{what}: no column {name!r}; {did_you_mean(name, schema.names)}")
    return schema.field(name)


def readable(schema: pa.Schema, name: str, what: str) -> pa.Field:
    """The field, refused where its type has no Arrow counterpart (it then shows as null)."""
    field = field_of(schema, name, what)
    if pa.types.is_null(field.type):
        raise TypeMismatch(f"{what}: column {name!r} has a type that Arrow cannot hold; drop or cast it")
    return field


def collated(field: pa.Field, collation: str) -> pa.Field:
    """The field of text that Spark compares by a collation: kernels carry it, and compare bytes."""
    return field.with_metadata({_COLLATION: collation})


def collation_of(field: pa.Field) -> str | None:
    """The collation of a field, or of a part of it; None if it is compared byte by byte."""
    own = (field.metadata or {}).get(_COLLATION)
    if own is not None:
        return str(own.decode())
    kind = field.type
    parts = (kind.field(place) for place in range(kind.num_fields)) if pa.types.is_nested(kind) else ()
    return next((found for part in parts if (found := collation_of(part)) is not None), None)


def refuse_collation(field: pa.Field, what: str) -> None:
    """Where values are compared, those of a collation would be told apart that Spark takes for equal."""
    collation = collation_of(field)
    if collation is not None:
        name = field.name
        raise TypeMismatch(
            f"{what} {name!r} has the collation {collation}, and values are compared byte by byte here; "
            f"use df.withColumn({name!r}, F.collate({name!r}, 'UTF8_BINARY')), with F.lower({name!r}) "
            "inside if upper and lower case are the same"
        )


def refuse_collisions(taken: Iterable[str], added: Iterable[str], what: str | Term) -> None:
    """Two columns of one name would make the result ambiguous."""
    twice = sorted(set(taken) & set(added))
    if twice:
        raise PlanError(what, f" {', '.join(map(repr, twice))}, which is a column already")


def refuse_unusable(names: Iterable[str]) -> None:
    """Names that columns cannot have: those of the columns that kernels put beside users', and what
    Polars, in which kernels and conditions are written, takes for patterns.
    """
    for name in names:
        if name.startswith(RESERVED_PREFIX):
            raise PlanError(f"column {name!r}: names that start with {RESERVED_PREFIX!r} are ours")
        if name in ("", "*") or (name.startswith("^") and name.endswith("$")):
            raise PlanError(f"column {name!r}: such a name means several columns, or none; rename it")


def refuse_duplicate_names(names: Sequence[str]) -> None:
    """A column is found by its name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanError(f"several columns are called {', '.join(map(repr, twice))}; rename or drop some")


def shortened(names: Sequence[str], most: int = 12) -> str:
    """The first names of many, for texts of one line."""
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])


def listed(schema: pa.Schema) -> str:
    """Columns with their types, as messages show them."""
    return "(" + ", ".join(f"{field.name}: {_type_text(field)}" for field in schema) + ")"


def _type_text(field: pa.Field) -> str:
    collation = collation_of(field)
    return str(field.type) if collation is None else f"{field.type} collate {collation}"


def is_key_type(kind: pa.DataType) -> bool:
    """Can Spark tell values of the type apart, and put them in order? Maps and variants it cannot."""
    if pa.types.is_struct(kind):
        marked = any(_MARKED_STRUCTS & set(part.metadata or ()) for part in kind)
        return not marked and all(is_key_type(part.type) for part in kind)
    if pa.types.is_list(kind):
        return is_key_type(kind.value_type)
    return is_flat_type(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind)


def is_flat_type(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal,
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
        pa.types.is_date, pa.types.is_timestamp,
    )  # fmt: skip
    return any(check(kind) for check in checks)


_COUNTERPARTS = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def counterpart(kind: pa.DataType) -> pa.DataType:
    """The type that holds the same values in Spark; one that it knows nothing like stays as it is."""
    if pa.types.is_dictionary(kind):
        return counterpart(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(counterpart(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, counterpart(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(counterpart(kind.key_type), counterpart(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return _COUNTERPARTS.get(kind, kind)


def is_known(kind: pa.DataType) -> bool:
    """Has Spark the type? Of null, which it has not either, more is said elsewhere."""
    if pa.types.is_nested(kind):
        parts = [kind.field(place).type for place in range(kind.num_fields)]
        return (pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind)) and all(
            map(is_known, parts)
        )
    others = (pa.types.is_duration, pa.types.is_time64, pa.types.is_null)
    return (is_flat_type(kind) or any(check(kind) for check in others)) and not pa.types.is_decimal256(
        kind
    )
