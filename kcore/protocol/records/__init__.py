"""The keys and values of records in Kafka's internal topics.

One file per record type holds its key and its value. The first two bytes of a key are its record type, so a reader of a
log needs only `decode_key` and `decode_value`.
"""

import pkgutil
from functools import cache
from importlib import import_module
from typing import NamedTuple

from kcore.protocol.records.base import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    Buffer,
    RecordKey,
    RecordValue,
)

__all__ = [
    "CONSUMER_OFFSETS",
    "SHARE_GROUP_STATE",
    "TRANSACTION_STATE",
    "RecordKey",
    "RecordValue",
    "UnknownRecord",
    "decode_key",
    "decode_value",
    "key_classes",
]


class UnknownRecord(NamedTuple):
    """A record of a type that kcore does not know. Readers skip such records.

    Attributes:
        record_type: the int16 at the beginning of the key; -1 if the key is shorter.
        key: the whole key.
        value: the whole value; None for a tombstone, or if only the key was decoded.
    """

    record_type: int
    key: bytes
    value: bytes | None = None


@cache
def key_classes(topic_name: str) -> dict[int, type[RecordKey]]:
    """Returns the key classes of a topic by record type; empty for a topic that is not internal.

    In `__consumer_offsets`, keys of types 0 and 1 have the same fields, and both are read as `OffsetCommitKey`.
    """
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    found = {cls.RECORD_TYPE: cls for cls in RecordKey.__subclasses__() if topic_name == cls.TOPIC}
    if topic_name == CONSUMER_OFFSETS:
        found[0] = found[1]
    return found


def decode_key(topic_name: str, data: Buffer) -> RecordKey | UnknownRecord:
    """Reads a record's key.

    Args:
        topic_name: the record's internal topic.
        data: the key's bytes.

    Returns:
        The key; an UnknownRecord if kcore does not know this record type in the topic.

    Raises:
        DecodeError: kcore knows the record type, and the bytes after it are malformed.
    """
    if len(data) < 2:
        return UnknownRecord(-1, bytes(data))
    record_type = int.from_bytes(data[:2], "big", signed=True)
    cls = key_classes(topic_name).get(record_type)
    if cls is None:
        return UnknownRecord(record_type, bytes(data))
    return cls.decode(data, 0, 2)


def decode_value(key: RecordKey | UnknownRecord, data: Buffer | None) -> RecordValue | UnknownRecord | None:
    """Reads a record's value.

    Args:
        key: the result of `decode_key` for the record's key.
        data: the value's bytes, None for a tombstone.

    Returns:
        The value; None for a tombstone; for an UnknownRecord, a copy of it with the value.

    Raises:
        DecodeError: the bytes are malformed, or of a version that cannot be read.
    """
    if isinstance(key, UnknownRecord):
        return key._replace(value=None if data is None else bytes(data))
    return None if data is None else key.VALUE.decode_value(data)
