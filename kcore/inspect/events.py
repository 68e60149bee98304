"""Events: what stands in a log, decoded for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kcore.broker.metadata.names import CLUSTER_METADATA, INTERNAL_TOPICS
from kcore.config.setting import HIDDEN
from kcore.protocol import DecodeError
from kcore.protocol.records import UnknownRecord, decode_key, decode_value
from kcore.protocol.records.metadata import UserScramCredentialRecord, decode_metadata_record
from kcore.protocol.schema import Struct
from kcore_ext.batch import iter_records, parse_control, parse_header

MARKERS = {0: "abort", 1: "commit"}


class Event(NamedTuple):
    """One record of a log.

    Attributes:
        topic: where it stands.
        partition: in which partition.
        offset: at which offset.
        timestamp_ms: its timestamp.
        type: the record's type (`GroupMetadata`, `OffsetCommit`, …), `marker` for the end of a transaction, `record`
            in a topic of users, `unknown` for a type that this version does not know, `unreadable` for a record of an
            internal topic that cannot be decoded: a coordinator cannot load it.
        key: the key's fields, or its text.
        value: the value's fields, or its text; None for a tombstone.
        producer_id: whose transaction it stands in, -1 for none.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    type: str
    key: Any
    value: Any
    producer_id: int = -1

    def concerns(self, group_id: str) -> bool:
        """Whether it is about a group."""
        return isinstance(self.key, dict) and group_id in (self.key.get("group"), self.key.get("group_id"))


SECRETS: dict[type, frozenset[str]] = {UserScramCredentialRecord: frozenset({"salt", "stored_key", "server_key"})}
"""Fields that no dump shows: with them a reader could try passwords, and pretend to be the server."""


def to_builtins(value: Any) -> Any:
    """A message as dicts, lists and plain values; bytes become text where they are, else hex."""
    if isinstance(value, Struct):
        secret = SECRETS.get(type(value), frozenset())
        return {
            spec.name: HIDDEN if spec.name in secret else to_builtins(getattr(value, spec.name))
            for spec in type(value).FIELDS
        }
    if isinstance(value, bytes | bytearray | memoryview):
        return readable(bytes(value))
    if isinstance(value, list | tuple):
        return [to_builtins(item) for item in value]
    return value


def readable(data: bytes | None) -> str | None:
    """Bytes as text if they are printable UTF-8, else as hex with 0x in front."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() else "0x" + data.hex()


def decode_batch(topic: str, partition: int, batch: bytes) -> Iterator[Event]:
    """The events of one record batch.

    Raises:
        CorruptBatchError: the bytes are no whole batch.
    """
    header = parse_header(batch)
    producer_id = header.producer_id if header.is_transactional else -1
    if header.is_control:
        marker = parse_control(batch)
        kind = MARKERS.get(marker.type, str(marker.type))
        value = {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch, "end": kind}
        yield Event(topic, partition, header.base_offset, header.max_timestamp_ms, "marker", None, value, producer_id)
        return
    for record in iter_records(batch):
        kind, key, value = _decode(topic, record.key, record.value)
        yield Event(topic, partition, record.offset, record.timestamp_ms, kind, key, value, producer_id)


def _decode(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, Any, Any]:
    """Type, key and value of a record; one that its coordinator could not decode is `unreadable`."""
    try:
        return _decode_known(topic, key, value)
    except DecodeError:
        return "unreadable", readable(key), readable(value)


def _decode_known(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, Any, Any]:
    if topic == CLUSTER_METADATA and value is not None:
        fact = decode_metadata_record(value)
        if isinstance(fact, Struct):
            return type(fact).__name__.removesuffix("Record"), None, to_builtins(fact)
        return "unknown", None, readable(value)
    if topic in INTERNAL_TOPICS and key is not None:
        typed = decode_key(topic, key)
        if not isinstance(typed, UnknownRecord):
            return type(typed).__name__.removesuffix("Key"), to_builtins(typed), to_builtins(decode_value(typed, value))
        return "unknown", readable(key), readable(value)
    return "record", readable(key), readable(value)
