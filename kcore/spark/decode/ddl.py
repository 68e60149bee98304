"""Converts Spark's DDL to Arrow types, so that each schema is defined once."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

_SIMPLE = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}


@cache
def arrow_struct(ddl: str) -> pa.StructType:
    """Returns columns (`a int, b array<string>`) as one struct type."""
    return pa.struct([_field(part) for part in _split(ddl)])


def _field(text: str) -> pa.Field:
    name, _, kind = text.strip().partition(":" if ":" in text.split("<", 1)[0] else " ")
    return pa.field(name.strip().strip("`"), _type(kind.strip()))


def _type(text: str) -> pa.DataType:
    head, _, rest = text.partition("<")
    if not rest:
        return _SIMPLE[head]
    inner = rest[:-1]
    if head == "array":
        return pa.list_(_type(inner))
    if head == "map":
        return pa.map_(*map(_type, _split(inner)))
    return pa.struct([_field(part) for part in _split(inner)])


def _split(text: str) -> list[str]:
    """Splits at commas outside of angle brackets."""
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return [*parts, text[begin:].strip()]
