"""Records as typed columns: a struct for each record type, over Arrow batches.

Nothing is dropped and nothing fails: what cannot be decoded is a row that says why (`status`, `detail`), with its bytes
still beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kcore.protocol import DecodeError
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    RecordKey,
    UnknownRecord,
    decode_key,
    key_classes,
)
from kcore.protocol.schema import Struct
from kcore.spark.ddl import arrow_struct
from kcore_ext.codec_plan import ARRAY, STRUCT, WIRE_KINDS
from kcore_ext.offsets import OffsetDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
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
"""What `status` may say."""

HEAD_DDL: Final = "status string, detail string, record_type int, type string, value_version int"
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
    """A struct's fields in Spark's DDL, as the fields of a struct type."""
    return ",".join(f"{spec.name}:{_field_ddl(spec)}" for spec in cls.FIELDS)


def _field_ddl(spec: Any) -> str:
    if spec.kind == ARRAY:
        item = f"struct<{fields_ddl(spec.struct)}>" if spec.item == STRUCT else _DDL_OF_KIND[spec.item]
        return f"array<{item}>"
    return f"struct<{fields_ddl(spec.struct)}>" if spec.kind == STRUCT else _DDL_OF_KIND[spec.kind]


def name_of(cls: type[RecordKey]) -> str:
    """A record type's name: that of its key's class without `Key`, which is its column's name too."""
    return cls.__name__.removesuffix("Key")


@cache
def record_types() -> dict[str, type[RecordKey]]:
    """Every record type of the internal topics by name, in the order of topics and types."""
    return {name_of(cls): cls for topic in TOPICS for _, cls in sorted(key_classes(topic).items(), key=lambda e: e[0])}


def record_ddl(name: str) -> str:
    """The columns of a record type's struct: its key's fields and its value's."""
    cls = record_types()[name]
    return f"key struct<{fields_ddl(cls)}>, value struct<{fields_ddl(cls.VALUE)}>"


def decoded_ddl(types: Iterable[str]) -> str:
    """The schema of `decode`'s answer in Spark's DDL."""
    kept = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    return ", ".join([kept, HEAD_DDL, *(f"`{name}` struct<{record_ddl(name)}>" for name in types)])


def decode(events: DataFrame, types: Iterable[str] | None = None) -> DataFrame:
    """Events with what their records say, typed.

    Args:
        events: at least key, value, topic, partition, offset and timestamp: the data source `kcore`, or Spark's own
            `kafka`. With the columns `control` and `batch_only`, rows that are no records are told apart.
        types: names of the record types that get columns; None: all. Rows of other types keep everything else.
    """
    names = tuple(record_types()) if types is None else tuple(types)
    extra = [name for name in ("control", "batch_only") if name in events.columns]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (decode_batch(batch, names) for batch in batches)

    return events.select(*KEPT, *extra).mapInArrow(run, decoded_ddl(names))


def decode_batch(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """One batch, decoded; as many rows as before, in their order."""
    size = batch.num_rows
    columns = {name: batch.column(name) for name in batch.schema.names}
    control = columns["control"].to_pylist() if "control" in columns else [False] * size
    empty = columns["batch_only"].to_pylist() if "batch_only" in columns else [False] * size
    values = zip(columns["topic"].to_pylist(), columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True)
    heads: list[tuple[Any, ...]] = []
    bodies: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    places: dict[str, list[int | None]] = {name: [None] * size for name in names}
    plain: list[Any] = []  # committed offsets, most of any log: read by the engine's own fast reader
    plain_at: list[int] = []
    read_plain = OffsetDecoder().decode if OFFSETS in names else None
    for index, (topic, key, value) in enumerate(values):
        if control[index] or empty[index]:
            heads.append(("no_record" if empty[index] else "control", None, None, None, None))
            continue
        if read_plain is not None and topic == CONSUMER_OFFSETS and key is not None and value is not None:
            found = read_plain(key, value)
            if found is not None:
                heads.append(_PLAIN_HEADS[key[1]][value[1]])
                plain.append(found)
                plain_at.append(index)
                continue
        head, body = decode_record(topic, key, value)
        heads.append(head)
        if body is not None and head[3] in bodies:
            places[head[3]][index] = len(bodies[head[3]])
            bodies[head[3]].append(body)
    arrays = [columns[name] for name in KEPT]
    head_type = arrow_struct(HEAD_DDL)
    for position, field in enumerate(head_type):
        arrays.append(pa.array([head[position] for head in heads], field.type))
    for name in names:
        kind = arrow_struct(record_ddl(name))
        own = bodies[name]
        if name == OFFSETS and plain:
            for place, index in enumerate(plain_at, len(own)):
                places[name][index] = place
            both = pa.concat_arrays([pa.array(own, kind), _plain_offsets(plain, kind)])
            arrays.append(both.take(pa.array(places[name], pa.int64())))
            continue
        arrays.append(pa.array(own, kind).take(pa.array(places[name], pa.int64())) if own else pa.nulls(size, kind))
    return pa.RecordBatch.from_arrays(arrays, names=[*KEPT, *(field.name for field in head_type), *names])


OFFSETS: Final = "OffsetCommit"
_PLAIN_HEADS: Final = [
    [("ok", None, record_type, OFFSETS, version) for version in range(5)] for record_type in range(2)
]


def _plain_offsets(found: list[Any], kind: pa.StructType) -> pa.Array:
    """Keys and values of committed offsets as the structs that `record_ddl` says."""
    keys, values = zip(*found, strict=True)
    key_type, value_type = kind.field("key").type, kind.field("value").type
    key_columns = [[getattr(key, field.name) for key in keys] for field in key_type]
    value_columns = [
        [value.committed_offset for value in values],
        [value.leader_epoch for value in values],
        [value.metadata for value in values],
        [value.commit_timestamp_ms for value in values],
        [value.expire_timestamp_ms for value in values],
        [value.topic_id for value in values],
    ]
    structs = [
        pa.StructArray.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, of, strict=True)], fields=list(of)
        )
        for columns, of in ((key_columns, key_type), (value_columns, value_type))
    ]
    return pa.StructArray.from_arrays(structs, fields=list(kind))


Head = tuple[str, str | None, int | None, str | None, int | None]
"""Status, detail, record type, its name, value version."""


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> tuple[Head, dict[str, Any] | None]:
    """What one record says: its head, and the fields of key and value; None where they cannot be read."""
    if topic not in TOPICS:
        return ("other_topic", None, None, None, None), None
    if key is None:
        return ("malformed", "a record without a key", None, None, None), None
    version = None if value is None or len(value) < 2 else int.from_bytes(value[:2], "big", signed=True)
    record_type = int.from_bytes(key[:2], "big", signed=True) if len(key) >= 2 else None
    try:
        typed = decode_key(topic, key)
    except DecodeError as error:
        return ("malformed", f"key: {error}", record_type, None, version), None
    if isinstance(typed, UnknownRecord):
        return ("unknown_type", None, record_type, None, version), None
    name = name_of(type(typed))
    plain_key = to_plain(typed)
    if value is None:
        return ("tombstone", None, record_type, name, None), {"key": plain_key, "value": None}
    try:
        decoded = typed.VALUE.decode_value(value)
    except DecodeError as error:
        known = version is not None and typed.VALUE.MIN_VERSION <= version <= typed.VALUE.MAX_VERSION
        status = "malformed" if known or version is None else "unknown_version"
        return (status, f"value: {error}", record_type, name, version), {"key": plain_key, "value": None}
    return ("ok", None, record_type, name, version), {"key": plain_key, "value": to_plain(decoded)}


def to_plain(value: Any) -> Any:
    """A struct as dicts and lists; bytes stay bytes."""
    if isinstance(value, Struct):
        return {spec.name: to_plain(getattr(value, spec.name)) for spec in type(value).FIELDS}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value
