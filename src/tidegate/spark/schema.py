"""Spark schemas as Arrow schemas and back: Arrow is the type system of plans and kernels."""

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from tidegate.spark.versions import arrow_type, struct_type


def arrow_schema(of: DataFrame | StructType) -> pa.Schema:
    """The schema in Arrow's words; a type it has none for is kept as a null column nobody can use."""
    fields = of if isinstance(of, StructType) else of.schema
    if isinstance(fields, pa.Schema):  # of what stands for a DataFrame in tests
        return fields
    return pa.schema([_arrow_field(field) for field in fields])


def spark_schema(schema: pa.Schema) -> StructType:
    return struct_type(schema)


def _arrow_field(field: StructField) -> pa.Field:
    kind = _arrow_type(field.dataType)
    return pa.field(field.name, kind, field.nullable or pa.types.is_null(kind))


def _arrow_type(kind: DataType) -> pa.DataType:
    try:
        return arrow_type(kind)
    except PySparkException:
        return pa.null()
