"""Records of `__consumer_offsets`, type 5: a member's subscription in a KIP-848 group."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Bytes, Int32, NullableString, String, Struct, field


class ClassicProtocol(Struct):
    """One entry of `supported_protocols` of ClassicMemberMetadata."""

    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Struct):
    """The value of `classic_member_metadata` of ConsumerGroupMemberMetadataValue."""

    session_timeout_ms: Int32 = 0
    supported_protocols: Array[ClassicProtocol] = ()


class ConsumerGroupMemberMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The member's subscription, and the protocols of a classic member."""

    instance_id: NullableString = ""
    rack_id: NullableString = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Array[String] = ()
    subscribed_topic_regex: NullableString = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString = ""
    classic_member_metadata: ClassicMemberMetadata | None = field(default_factory=ClassicMemberMetadata, tag=0)


class ConsumerGroupMemberMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=5, value=ConsumerGroupMemberMetadataValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
