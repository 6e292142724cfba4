"""Spark's names of types as Arrow types, without Spark: plans are made where there is no JVM."""

from __future__ import annotations

import re

import pyarrow as pa

from tidegate.errors import PlanError, did_you_mean

_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
}
_DECIMAL = re.compile(r"(?:decimal|numeric)(?:\((\d+)(?:,(\d+))?\))?")
_NESTED = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)


def arrow_type(name: str) -> pa.DataType:
    """The type that a column declared so has: `bigint`, `decimal(10,2)`, `array<struct<a:int>>`."""
    text = " ".join(name.lower().split())
    if text in _PLAIN:
        return _PLAIN[text]
    if decimal := _DECIMAL.fullmatch(text.replace(" ", "")):
        return pa.decimal128(int(decimal[1] or 10), int(decimal[2] or 0))
    if nested := _NESTED.fullmatch(name.strip()):
        return _nested(nested[1].lower(), _parts(nested[2]), name)
    known = [*_PLAIN, "decimal(10,2)", "array<…>", "map<…,…>", "struct<name:…>"]
    raise PlanError(f"no type {name!r}; {did_you_mean(text, known)}")


def _nested(kind: str, parts: list[str], name: str) -> pa.DataType:
    match kind, parts:
        case "array", [element]:
            return pa.list_(arrow_type(element))
        case "map", [key, value]:
            return pa.map_(arrow_type(key), arrow_type(value))
        case "struct", _ if all(":" in part for part in parts):
            named = (part.split(":", 1) for part in parts)
            return pa.struct([(field.strip(), arrow_type(kind)) for field, kind in named])
    raise PlanError(
        f"no type {name!r}: write array<string>, map<string,bigint> or struct<a:int,b:string>"
    )


def _parts(text: str) -> list[str]:
    """The text at its commas, those inside of brackets left alone."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
