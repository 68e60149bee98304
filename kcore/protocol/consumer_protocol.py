"""The embedded consumer protocol: JoinGroup metadata and SyncGroup assignments of classic consumers.

On the wire, an int16 version precedes the metadata and the assignment. The decoder reads a version above the newest
declared version like the newest version. New versions only append fields, and the decoder ignores bytes after the
fields that it knows. It refuses negative versions.
"""

from typing import Final, Self

from kcore.protocol.schema import Array, Int32, Message, NullableBytes, NullableString, String, Struct, field
from kcore_ext.codec.plan import DecodeError

Buffer = bytes | bytearray | memoryview

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups that use this protocol."""


class TopicPartition(Struct):
    """One entry of `owned_partitions` or `assigned_partitions`: partitions of one topic."""

    topic: String = ""
    partitions: Array[Int32] = ()


class _Versioned(Message):
    """A message prefixed with its int16 version."""

    __slots__ = ()

    def encode_versioned(self, version: int) -> bytes:
        """Encodes the int16 version and the message.

        Raises:
            EncodeError: a value cannot be encoded in this version.
        """
        return version.to_bytes(2, "big") + self.encode(version)

    @classmethod
    def decode_versioned(cls, data: Buffer, max_elements: int | None = None) -> tuple[Self, int]:
        """Decodes the version and the message.

        Args:
            data: the version and the message.
            max_elements: the largest number of elements in all arrays together; None: any.

        Returns:
            The message and its encoded version, which may be newer than the newest declared version.

        Raises:
            TooManyElementsError: the message has more than `max_elements` elements.
            DecodeError: the bytes are truncated or malformed, or the version is negative.
        """
        if len(data) < 2:
            raise DecodeError(0, f"a version needs 2 bytes, found {len(data)}")
        version = int.from_bytes(data[:2], "big", signed=True)
        if version < cls.MIN_VERSION:
            raise DecodeError(0, f"version {version} of {cls.__name__} does not exist")
        known_version = min(version, cls.MAX_VERSION)
        if max_elements is None:
            return cls.decode(data, known_version, 2), version
        return cls.decode(data, known_version, 2, max_elements), version


class ConsumerProtocolSubscription(_Versioned, versions="0-3"):
    """A consumer's subscription; v1 adds owned partitions (KIP-429), v2 their generation (KIP-792), v3 racks
    (KIP-881).
    """

    topics: Array[String] = ()
    user_data: NullableBytes = None
    owned_partitions: Array[TopicPartition] = field("1+", default=(), ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: NullableString = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(_Versioned, versions="0-3"):
    """A consumer's assignment. All versions have the same fields; the version numbers are those of the subscription."""

    assigned_partitions: Array[TopicPartition] = ()
    user_data: NullableBytes = None


Subscription = ConsumerProtocolSubscription
Assignment = ConsumerProtocolAssignment
