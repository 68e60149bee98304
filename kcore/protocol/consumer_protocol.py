"""The embedded consumer protocol: what classic consumers put into JoinGroup metadata and SyncGroup assignments.

On the wire both stand behind an int16 version. A version above the newest known is read as the newest known, since
fields are only ever appended, and bytes behind the known fields are ignored. Negative versions are refused.
"""

from typing import Final, Self

from kcore.protocol.schema import Array, Int32, Message, NullableBytes, NullableString, String, Struct, field
from kcore_ext.codec.plan import DecodeError

Buffer = bytes | bytearray | memoryview

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups that speak this protocol."""


class TopicPartition(Struct):
    """One entry of `owned_partitions` or `assigned_partitions`: partitions of one topic."""

    topic: String = ""
    partitions: Array[Int32] = ()


class _Versioned(Message):
    """A message behind its int16 version."""

    __slots__ = ()

    def encode_versioned(self, version: int) -> bytes:
        """The int16 version, then the message.

        Raises:
            EncodeError: see `Message.encode`.
        """
        return version.to_bytes(2, "big") + self.encode(version)

    @classmethod
    def decode_versioned(cls, data: Buffer) -> tuple[Self, int]:
        """Reads the version and the message.

        Returns:
            The message and the version that stands in front of it, which may be newer than the one it was read as.

        Raises:
            DecodeError: the bytes are cut short or malformed, or the version is negative.
        """
        if len(data) < 2:
            raise DecodeError(0, f"a version needs 2 bytes, found {len(data)}")
        version = int.from_bytes(data[:2], "big", signed=True)
        if version < cls.MIN_VERSION:
            raise DecodeError(0, f"version {version} of {cls.__name__} does not exist")
        return cls.decode(data, min(version, cls.MAX_VERSION), 2), version


class ConsumerProtocolSubscription(_Versioned, versions="0-3"):
    """What a consumer wants; v1 has owned partitions (KIP-429), v2 their generation (KIP-792), v3 racks (KIP-881)."""

    topics: Array[String] = ()
    user_data: NullableBytes = None
    owned_partitions: Array[TopicPartition] = field("1+", default=(), ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: NullableString = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(_Versioned, versions="0-3"):
    """A consumer's assignment; the versions only follow those of the subscription."""

    assigned_partitions: Array[TopicPartition] = ()
    user_data: NullableBytes = None


Subscription = ConsumerProtocolSubscription
Assignment = ConsumerProtocolAssignment
