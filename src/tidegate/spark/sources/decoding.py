"""Payloads as rows: what messages and lines of text say, read by a schema, and what is wrong with them.

Decoded rows have two columns beside those of the schema: why a row is invalid, and where it came from,
with its payload (`invalid_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from tidegate.spark.sources.invalid_rows import EMPTY, INVALID, NOT_JSON, NOT_UTF_8, ORIGIN, TOMBSTONE

#: Where Spark's readers put text that does not agree with the schema.
_CORRUPT = "__tidegate_corrupt"

_ROW = "__tidegate_row"
_RAW_JSON = "map<string, string>"

#: So much of a value is told in a reason; the payload has all of it.
_MOST_SHOWN = 100

_BLANKS = " \t\r\n"


@dataclass(frozen=True)
class Decoder:
    """How text becomes rows: the columns, the format, and what becomes of fields of another type.

    Those are null, as Spark has it, or with `strict` they make the whole row invalid.
    """

    schema: StructType
    format: str
    options: Mapping[str, str]
    strict: bool = False

    @property
    def leaves_corrupt_text(self) -> bool:
        """Does the schema itself have a column for text that cannot be read? Then that is the user's."""
        own = self.options.get("columnNameOfCorruptRecord", "_corrupt_record")
        return own in self.schema.names

    def messages(self, messages: DataFrame) -> DataFrame:
        """The values of Kafka's messages, of which one that is null is told apart."""
        value = F.col("value")
        origin = F.struct(
            "topic", "partition", "offset", "timestamp", *_as_text("key", "key"), *_as_text("value")
        )
        told = F.when(value.isNull(), F.lit(TOMBSTONE)).when(~_is_text(value), F.lit(NOT_UTF_8))
        return self._decoded(messages, value.cast("string"), told, origin)

    def lines(self, lines: DataFrame, line: str, file: str) -> DataFrame:
        """Lines of files, as bytes without what ends them."""
        if self.leaves_corrupt_text:
            own = self._parsed(F.col(line).cast("string"), self.schema, self.options)
            return lines.select(own.alias(_ROW)).select(f"{_ROW}.*")
        origin = F.struct(F.col(file).alias("file"), *_as_text(line))
        told = F.when(~_is_text(F.col(line)), F.lit(NOT_UTF_8))
        return self._decoded(lines, F.col(line).cast("string"), told, origin)

    def from_files(self, rows: DataFrame) -> DataFrame:
        """What Spark's own reader made of files, given `reader_schema` and `reader_options`."""
        corrupt = F.col(_CORRUPT)
        whole = F.when(corrupt.isNull(), F.struct(*map(_column, self.schema.names)))
        origin = F.struct(
            rows.metadataColumn("_metadata")["file_path"].alias("file"),
            *_as_text(_CORRUPT),
            whole.alias("row"),
        )
        row = F.struct(*map(_column, self.schema.names))
        invalid = F.when(~_is_text(corrupt), F.lit(NOT_UTF_8)).when(
            corrupt.isNotNull(), self._reason(corrupt, row)
        )
        return rows.select(
            *map(_column, self.schema.names), invalid.alias(INVALID), origin.alias(ORIGIN)
        )

    @property
    def reader_schema(self) -> StructType:
        """The columns, and one for text that does not agree with them."""
        return StructType([*self.schema, StructField(_CORRUPT, StringType())])

    @property
    def reader_options(self) -> dict[str, str]:
        return {**self.options, "columnNameOfCorruptRecord": _CORRUPT}

    def _decoded(self, given: DataFrame, text: Column, told: Column, origin: Column) -> DataFrame:
        row = F.col(_ROW)
        corrupt = row.isNull() | row[_CORRUPT].isNotNull()
        reason = F.when(F.trim(text, F.lit(_BLANKS)) == "", F.lit(EMPTY)).otherwise(
            self._reason(text, row)
        )
        told = told.when(corrupt, reason)
        parsed = self._parsed(text, self.reader_schema, self.reader_options)
        rows = given.select("*", parsed.alias(_ROW))
        columns = (row[name].alias(name) for name in self.schema.names)
        return rows.select(*columns, told.alias(INVALID), origin.alias(ORIGIN))

    def _parsed(self, text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
        if self.format == "json":
            return F.from_json(text, schema, dict(options))
        return F.from_csv(text, schema.toDDL(), dict(options))

    # -- what is wrong ----------------------------------------------------------------------------

    def _reason(self, text: Column, row: Column) -> Column:
        """Why text that does not agree with the schema is no row; null if it is one all the same."""
        if self.format == "json":
            raw = F.from_json(text, _RAW_JSON, dict(self.options))
            told = F.when(raw.isNull(), F.lit(NOT_JSON))
            return told.otherwise(_invalid_fields(self.schema, row, raw)) if self.strict else told
        if not self.strict:
            return F.lit(None).cast("string")
        texts = StructType([StructField(name, StringType()) for name in self.schema.names])
        raw = self._parsed(text, texts.add(_CORRUPT, StringType()), self.reader_options)
        count = F.lit(f"the line does not have {len(self.schema)} columns")
        return F.when(raw[_CORRUPT].isNotNull(), count).otherwise(_invalid_fields(self.schema, row, raw))


def _invalid_fields(schema: StructType, row: Column, raw: Column) -> Column:
    """Which fields are not what the schema says, and what stands there."""
    told = F.concat_ws("; ", *_told(schema, row, raw, ""))
    return F.when(told != "", told).otherwise(F.lit("a field is not of the declared type"))


def _told(schema: StructType, row: Column, raw: Column, path: str) -> Iterable[Column]:
    for field in schema:
        value, text, name = row[field.name], raw[field.name], f"{path}{field.name}"
        kind = field.dataType.simpleString()
        shown = F.concat(
            F.lit(f"field {name!r} is not of type {kind}: "), F.substring(text, 1, _MOST_SHOWN)
        )
        yield F.when(value.isNull() & text.isNotNull(), shown)
        if isinstance(field.dataType, StructType):
            yield from _told(field.dataType, value, F.from_json(text, _RAW_JSON), f"{name}.")


def _is_text(value: Column) -> Column:
    return F.is_valid_utf8(value)


def _as_text(column: str, name: str = "payload") -> list[Column]:
    """Bytes as a field of text, or under another name as base64; the one that does not apply is null."""
    value = F.col(column)
    text, binary = value.cast("string"), F.base64(value.cast("binary"))
    return [
        F.when(_is_text(value), text).alias(name),
        F.when(~_is_text(value), binary).alias(f"{name}_base64"),
    ]


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def struct_of(schema: StructType | str) -> StructType:
    """A schema that may be given as text."""
    parsed = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(parsed, StructType), "columns have names"
    return parsed
