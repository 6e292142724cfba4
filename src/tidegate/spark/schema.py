"""Spark schemas as Arrow schemas and back: Arrow is the type system of plans and kernels."""

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from tidegate.plan.schema import collated, collation_of
from tidegate.spark.versions import arrow_type, struct_type

#: The collation of text that is compared byte by byte.
_BYTES = "UTF8_BINARY"


def arrow_schema(of: DataFrame | StructType) -> pa.Schema:
    """The schema in Arrow's words; a type it has none for is kept as a null column nobody can use."""
    fields = of if isinstance(of, StructType) else of.schema
    if isinstance(fields, pa.Schema):  # of what stands for a DataFrame in tests
        return fields
    return pa.schema([_arrow_field(field) for field in fields])


def spark_schema(schema: pa.Schema) -> StructType:
    plain = struct_type(schema)
    return StructType([_with_collations(one, schema.field(place)) for place, one in enumerate(plain)])


def _arrow_field(field: StructField) -> pa.Field:
    kind = _arrow_type(field.dataType)
    made = pa.field(field.name, kind, field.nullable or pa.types.is_null(kind))
    return _with_metadata(made, field.dataType)


# -- collations: in Spark part of a type, in Arrow metadata of a field --------------------------------


def _with_metadata(field: pa.Field, kind: DataType) -> pa.Field:
    if isinstance(kind, StringType) and kind.collation != _BYTES and not pa.types.is_null(field.type):
        return collated(field, kind.collation)
    if isinstance(kind, ArrayType) and pa.types.is_list(field.type):
        return field.with_type(pa.list_(_with_metadata(field.type.value_field, kind.elementType)))
    if isinstance(kind, MapType) and pa.types.is_map(field.type):
        key, item = field.type.key_field, field.type.item_field
        return field.with_type(
            pa.map_(_with_metadata(key, kind.keyType), _with_metadata(item, kind.valueType))
        )
    if isinstance(kind, StructType) and pa.types.is_struct(field.type):
        parts = zip(field.type, kind, strict=True)
        return field.with_type(pa.struct([_with_metadata(one, own.dataType) for one, own in parts]))
    return field


def _with_collations(field: StructField, given: pa.Field) -> StructField:
    return StructField(field.name, _collated_type(field.dataType, given), field.nullable)


def _collated_type(kind: DataType, given: pa.Field) -> DataType:
    collation = collation_of(given)
    if collation is None:
        return kind
    match kind:
        case StringType():
            return StringType(collation)
        case ArrayType():
            return ArrayType(_collated_type(kind.elementType, given.type.value_field), kind.containsNull)
        case MapType():
            key = _collated_type(kind.keyType, given.type.key_field)
            value = _collated_type(kind.valueType, given.type.item_field)
            return MapType(key, value, kind.valueContainsNull)
        case StructType():
            parts = zip(kind, given.type, strict=True)
            return StructType([_with_collations(one, own) for one, own in parts])
    return kind


def _arrow_type(kind: DataType) -> pa.DataType:
    try:
        return arrow_type(kind)
    except PySparkException:
        return pa.null()
