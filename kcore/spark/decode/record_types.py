"""The record types of the internal topics: their names, and their columns in Spark's DDL."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from kcore.protocol.pure import ARRAY, STRUCT, WIRE_KINDS
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, RecordKey, key_classes
from kcore.protocol.schema import Struct

TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""The internal topics with coordinator state."""
NO_KEY: Final = "a record without a key"
"""The description of a record without a key. Every job counts it as malformed: Kafka cannot load a log with it."""
STATUSES: Final = (
    "ok",
    "tombstone",
    "control",
    "no_record",
    "unknown_type",
    "unknown_version",
    "malformed",
    "other_topic",
)
"""The values of the column `status`."""

HEAD_DDL: Final = "status string, detail string, record_type int, type string, value_version int"
KEPT_DDL: Final = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
KEPT: Final = ("key", "value", "topic", "partition", "offset", "timestamp")

_DDL_OF_KIND: Final = {
    WIRE_KINDS[name]: ddl
    for name, ddl in {
        "bool": "boolean", "int8": "tinyint", "int16": "smallint", "uint16": "int", "int32": "int",
        "uint32": "bigint", "int64": "bigint", "float64": "double", "uuid": "binary", "string": "string",
        "bytes": "binary", "records": "binary",
    }.items()
}  # fmt: skip


def fields_ddl(cls: type[Struct]) -> str:
    """Returns a struct's fields in Spark's DDL."""
    return ",".join(f"{spec.name}:{_field_ddl(spec)}" for spec in cls.FIELDS)


def _field_ddl(spec: Any) -> str:
    if spec.kind == ARRAY:
        item = f"struct<{fields_ddl(spec.struct)}>" if spec.item == STRUCT else _DDL_OF_KIND[spec.item]
        return f"array<{item}>"
    return f"struct<{fields_ddl(spec.struct)}>" if spec.kind == STRUCT else _DDL_OF_KIND[spec.kind]


def name_of(cls: type[RecordKey]) -> str:
    """Returns the name of a record type and of its column: the name of its key class without `Key`."""
    return cls.__name__.removesuffix("Key")


@cache
def record_types() -> dict[str, type[RecordKey]]:
    """Returns every record type of the internal topics by name, ordered by topic and type."""
    return {name_of(cls): cls for topic in TOPICS for _, cls in sorted(key_classes(topic).items(), key=lambda e: e[0])}


def record_ddl(name: str) -> str:
    """Returns the columns of a record type's struct: the fields of its key and of its value."""
    cls = record_types()[name]
    return f"key struct<{fields_ddl(cls)}>, value struct<{fields_ddl(cls.VALUE)}>"


def decoded_ddl(types: Iterable[str]) -> str:
    """Returns the schema of `decode`'s result in Spark's DDL."""
    return ", ".join([KEPT_DDL, HEAD_DDL, *(f"`{name}` struct<{record_ddl(name)}>" for name in types)])
