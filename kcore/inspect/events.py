"""Events: the records of a log, decoded for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kcore.broker.metadata.names import CLUSTER_METADATA, INTERNAL_TOPICS
from kcore.config.node import Config
from kcore.config.setting import HIDDEN, SettingType
from kcore.protocol import DecodeError
from kcore.protocol.records import UnknownRecord, decode_key, decode_value
from kcore.protocol.records.metadata import ConfigRecord, UserScramCredentialRecord, decode_metadata_record
from kcore.protocol.schema import Struct
from kcore_ext.batch import iter_records, parse_control, parse_header

MARKERS = {0: "abort", 1: "commit"}


class Event(NamedTuple):
    """One record of a log.

    Attributes:
        topic: the name of the record's topic.
        partition: the number of the record's partition.
        offset: the record's position in the partition.
        timestamp_ms: in ms since the epoch; -1 for none.
        type: the record's type, such as `GroupMetadata`. Other values are `marker` for the end of a transaction,
            `record` for a record of a user topic, and `unknown` for a type that this version does not know. A record of
            an internal topic is `unreadable` if its coordinator cannot decode or load it.
        key: the key's fields, or its text.
        value: the value's fields, or its text; None for a tombstone.
        producer_id: the producer of the record's transaction, -1 for none.
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
        """Returns True if the event concerns a group."""
        return isinstance(self.key, dict) and group_id in (self.key.get("group"), self.key.get("group_id"))


SECRETS: dict[type, frozenset[str]] = {UserScramCredentialRecord: frozenset({"salt", "stored_key", "server_key"})}
"""Record type -> the fields that no dump shows.

With these fields, a reader could guess passwords or impersonate the server.
"""


SECRET_SETTINGS = (
    "sasl.jaas.config",
    *(name for name, entry in Config.SETTINGS.items() if entry.type is SettingType.PASSWORD),
)
"""Settings whose values no dump shows: passwords and private keys. A listener's prefix may precede these names."""


def to_builtins(value: Any) -> Any:
    """Converts a message to dicts, lists and scalars; bytes become text if they are readable, else hex."""
    if isinstance(value, Struct):
        secret = SECRETS.get(type(value), frozenset())
        if isinstance(value, ConfigRecord) and value.value is not None and value.name.endswith(SECRET_SETTINGS):
            secret = frozenset({"value"})
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
    """Formats bytes as text if they are printable UTF-8, else as hex with the prefix 0x."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() else "0x" + data.hex()


def decode_batch(topic: str, partition: int, batch: bytes) -> Iterator[Event]:
    """Yields the events of one record batch.

    Raises:
        CorruptBatchError: the bytes are not a complete batch.
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
    """Decodes type, key and value of a record; the type is `unreadable` if its coordinator could not decode it."""
    try:
        return _decode_known(topic, key, value)
    except DecodeError:
        return "unreadable", readable(key), readable(value)


def _decode_known(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, Any, Any]:
    if topic == CLUSTER_METADATA and value is not None:
        metadata = decode_metadata_record(value)
        if isinstance(metadata, Struct):
            return type(metadata).__name__.removesuffix("Record"), None, to_builtins(metadata)
        return "unknown", None, readable(value)
    if topic in INTERNAL_TOPICS and key is not None:
        typed = decode_key(topic, key)
        if not isinstance(typed, UnknownRecord):
            return type(typed).__name__.removesuffix("Key"), to_builtins(typed), to_builtins(decode_value(typed, value))
        return "unknown", readable(key), readable(value)
    return "record", readable(key), readable(value)
