"""Keys and values of records in Kafka's internal topics.

A key is its int16 record type, then the key's fields in version 0. A value is its int16 version, then the fields of
that version; a null value (a tombstone) deletes the object that the key names.
"""

from typing import ClassVar, Final, Self

from kcore.protocol import DecodeError
from kcore.protocol.schema import Message

Buffer = bytes | bytearray | memoryview

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"


class RecordValue(Message):
    """The value of an internal record."""

    __slots__ = ()

    def encode_value(self, version: int) -> bytes:
        """Encodes the value after its int16 version.

        Raises:
            EncodeError: the value does not have this version, or a field does not fit (see `Message.encode`).
        """
        return version.to_bytes(2, "big") + self.encode(version)

    @classmethod
    def decode_value(cls, data: Buffer) -> Self:
        """Reads a value, which begins with its int16 version.

        If the newest declared version is flexible, the method decodes values of newer versions as that version. This
        is safe, because Kafka adds only tagged fields to flexible versions (KIP-915).

        Raises:
            DecodeError: the bytes are malformed, or of a version that cannot be read.
        """
        version = _prefix(data, "a value's version")
        if version > cls.MAX_VERSION >= cls.FLEXIBLE_SINCE:
            version = cls.MAX_VERSION
        return cls.decode(data, version, 2)


class RecordKey(Message):
    """The key of an internal record. Its record type determines the fields of key and value."""

    __slots__ = ()
    TOPIC: ClassVar[str] = ""
    RECORD_TYPE: ClassVar[int] = -1
    VALUE: ClassVar[type[RecordValue]]

    def __init_subclass__(cls, *, topic: str, record_type: int, value: type[RecordValue]) -> None:
        super().__init_subclass__(api_key=record_type, versions="0")
        cls.TOPIC = topic
        cls.RECORD_TYPE = record_type
        cls.VALUE = value

    def encode_key(self) -> bytes:
        """Encodes the key after its int16 record type."""
        return self.RECORD_TYPE.to_bytes(2, "big") + self.encode(0)

    @classmethod
    def decode_key(cls, data: Buffer) -> Self:
        """Reads a key of this type, beginning with the int16 record type.

        Raises:
            DecodeError: the bytes are malformed or of another record type.
        """
        found = _prefix(data, "a record type")
        if found != cls.RECORD_TYPE:
            raise DecodeError(0, f"expected record type {cls.RECORD_TYPE}, found {found}")
        return cls.decode(data, 0, 2)


def _prefix(data: Buffer, what: str) -> int:
    """Returns the int16 at the beginning of a key or value."""
    if len(data) < 2:
        raise DecodeError(0, f"{what} needs 2 bytes, found {len(data)}")
    return int.from_bytes(data[:2], "big", signed=True)
