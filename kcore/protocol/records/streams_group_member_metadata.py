"""Records of `__consumer_offsets`, type 19: a member of a streams group (KIP-1071)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int32, NullableString, String, Struct, UInt16


class Endpoint(Struct):
    """The value of `user_endpoint` of StreamsGroupMemberMetadataValue."""

    host: String = ""
    port: UInt16 = 0


class KeyValue(Struct):
    """One entry of `client_tags` of StreamsGroupMemberMetadataValue."""

    key: String = ""
    value: String = ""


class StreamsGroupMemberMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The member's process, endpoint and tags."""

    instance_id: NullableString = ""
    rack_id: NullableString = ""
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue] = ()


class StreamsGroupMemberMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=19, value=StreamsGroupMemberMetadataValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
