"""KRaft's records of `__cluster_metadata` (KIP-631): topics, partitions, settings, features, nodes, permissions.

A record has no key. Its value consists of the frame version (1), the record's API key, the record's version, and the
record's fields. The first three are unsigned varints. All versions of all records are flexible (KIP-482).
"""

from functools import cache
from typing import Final

from kcore.protocol import DecodeError
from kcore.protocol.records.base import Buffer
from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)

CLUSTER_METADATA: Final = "__cluster_metadata"

_FRAME_VERSION: Final = 1


class MetadataRecord(Message):
    """The base of the records of the metadata log."""

    __slots__ = ()


class BrokerEndpoint(Struct):
    """One entry of `end_points` of RegisterBrokerRecord."""

    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Struct):
    """One entry of `features` of RegisterBrokerRecord."""

    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions="0-4", flexible="0+"):
    """The registration of a node. v1 adds the flag for a controlled shutdown, v3 the log directories (KIP-858), v4 the
    cordoned log directories (KIP-1066).
    """

    broker_id: Int32 = 0
    is_migrating_zk_broker: Bool = field("2+", default=False)
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: Array[BrokerEndpoint] = ()
    features: Array[BrokerFeature] = ()
    rack: NullableString = ""
    fenced: Bool = True
    in_controlled_shutdown: Bool = field("1+", default=False)
    log_dirs: Array[Uuid] = field("3+", default=(), tag=0)
    cordoned_log_dirs: Array[Uuid] | None = field("4+", default=None, tag=1)


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions="0", flexible="0+"):
    """A node was removed from the cluster."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(MetadataRecord, api_key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: String = ""
    topic_id: Uuid = ZERO_UUID


class PartitionRecord(MetadataRecord, api_key=3, versions="0-2", flexible="0+"):
    """A partition was created; v1 adds directories (KIP-858), v2 eligible leaders (KIP-966)."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: Array[Int32] = ()
    isr: Array[Int32] = ()
    removing_replicas: Array[Int32] = ()
    adding_replicas: Array[Int32] = ()
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Array[Uuid] = field("1+", default=())
    eligible_leader_replicas: Array[Int32] | None = field("2+", default=None, tag=1)
    last_known_elr: Array[Int32] | None = field("2+", default=None, tag=2)


class ConfigRecord(MetadataRecord, api_key=4, versions="0", flexible="0+"):
    """A new value of a setting. A null value removes the setting."""

    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: NullableString = ""


class PartitionChangeRecord(MetadataRecord, api_key=5, versions="0-2", flexible="0+"):
    """A partition has a new leader or new replicas.

    If `leader` is -2, the leader is unchanged. Any other value increases the leader epoch by one.
    """

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: Array[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: Array[Int32] | None = field(default=None, tag=2)
    removing_replicas: Array[Int32] | None = field(default=None, tag=3)
    adding_replicas: Array[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    eligible_leader_replicas: Array[Int32] | None = field("2+", default=None, tag=6)
    last_known_elr: Array[Int32] | None = field("2+", default=None, tag=7)
    directories: Array[Uuid] | None = field("1+", default=None, tag=8)


class RemoveTopicRecord(MetadataRecord, api_key=9, versions="0", flexible="0+"):
    """A topic and its partitions were removed."""

    topic_id: Uuid = ZERO_UUID


class UserScramCredentialRecord(MetadataRecord, api_key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential (KIP-554): the keys that the server derives from a password (RFC 5802)."""

    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0

    def __repr__(self) -> str:
        # The keys let a reader try passwords, and pretend to be the server: they are shown nowhere.
        return f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism}, [hidden])"


class FeatureLevelRecord(MetadataRecord, api_key=12, versions="0", flexible="0+"):
    """A feature was set to a level; level 0 removes the feature (KIP-584)."""

    name: String = ""
    feature_level: Int16 = 0


class QuotaEntityData(Struct):
    """One entry of `entity` of ClientQuotaRecord."""

    entity_type: String = ""
    entity_name: NullableString = ""


class ClientQuotaRecord(MetadataRecord, api_key=14, versions="0", flexible="0+"):
    """A quota of an entity was set or removed (KIP-546)."""

    entity: Array[QuotaEntityData] = ()
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(MetadataRecord, api_key=15, versions="0", flexible="0+"):
    """A block of producer ids was allocated to a broker. The next block begins at `next_producer_id`."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions="0-3", flexible="0+"):
    """A change of a registered node (KIP-841).

    `fenced` is 1 if the node was fenced, -1 if it was unfenced, and 0 without a change. `in_controlled_shutdown` is 1
    if the node begins to shut down, and 0 without a change.
    """

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Int8 = field(default=0, tag=0)
    in_controlled_shutdown: Int8 = field("1+", default=0, tag=1)
    log_dirs: Array[Uuid] = field("2+", default=(), tag=2)
    cordoned_log_dirs: Array[Uuid] | None = field("3+", default=None, tag=3)


class AccessControlEntryRecord(MetadataRecord, api_key=18, versions="0", flexible="0+"):
    """An entry of the access control lists was created (KIP-801)."""

    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(MetadataRecord, api_key=19, versions="0", flexible="0+"):
    """An entry of the access control lists was removed."""

    id: Uuid = ZERO_UUID


class RemoveUserScramCredentialRecord(MetadataRecord, api_key=22, versions="0", flexible="0+"):
    """A user cannot authenticate with this SCRAM mechanism any more."""

    name: String = ""
    mechanism: Int8 = 0


@cache
def _record_classes() -> dict[int, type[MetadataRecord]]:
    """Returns the record classes by API key."""
    return {cls.API_KEY: cls for cls in MetadataRecord.__subclasses__()}


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """Encodes the value of a record in the metadata log; its key is null.

    Raises:
        EncodeError: the record does not have this version, or a field does not fit (see `Message.encode`).
    """
    body = record.encode(version)
    return bytes((_FRAME_VERSION, record.API_KEY, version)) + body  # varints of one byte: all are below 128


def decode_metadata_record(data: Buffer) -> MetadataRecord:
    """Reads a value of the metadata log.

    Raises:
        DecodeError: the bytes are malformed, or the record's type or version is unknown. Callers must not use a
            metadata log with an unreadable record, because the meaning of a record depends on all records before it.
    """
    if len(data) > 2 and data[0] == _FRAME_VERSION and data[1] < 0x80 and data[2] < 0x80:
        api_key, version, position = data[1], data[2], 3  # varints of one byte, as `encode_metadata_record` writes
    else:
        frame_version, position = _unsigned_varint(data, 0)
        if frame_version != _FRAME_VERSION:
            raise DecodeError(0, f"expected frame version {_FRAME_VERSION}, found {frame_version}")
        api_key, position = _unsigned_varint(data, position)
        version, position = _unsigned_varint(data, position)
    cls = _record_classes().get(api_key)
    if cls is None:
        raise DecodeError(1, f"metadata record type {api_key} is unknown")
    if version > cls.MAX_VERSION:
        raise DecodeError(position - 1, f"version {version} of {cls.__name__} is unknown; newest: {cls.MAX_VERSION}")
    return cls.decode(data, version, position)


def _unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes. Returns the number and the position after it."""
    value = 0
    for at in range(5):
        if position + at >= len(data):
            break
        byte = data[position + at]
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return value, position + at + 1
    raise DecodeError(position, "an unsigned varint is cut short or longer than five bytes")
