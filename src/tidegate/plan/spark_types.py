"""Arrow types that Spark has: one width of text, microseconds, no unsigned numbers."""

import pyarrow as pa

from tidegate.plan.columns import is_key_type

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
    return (is_key_type(kind) or any(check(kind) for check in others)) and not pa.types.is_decimal256(
        kind
    )
