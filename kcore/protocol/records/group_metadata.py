"""Records of `__consumer_offsets`, type 2: classic groups."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Bytes, Int32, Int64, NullableString, String, Struct, field


class MemberMetadata(Struct):
    """One entry of `members` of GroupMetadataValue."""

    member_id: String = ""
    group_instance_id: NullableString = field("3+", default=None, ignorable=True)
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(RecordValue, versions="0-4", flexible="4+"):
    """A stable generation of a classic group; v3 adds group instance ids (KIP-345)."""

    protocol_type: String = ""
    generation: Int32 = 0
    protocol: NullableString = ""
    leader: NullableString = ""
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: Array[MemberMetadata] = ()


class GroupMetadataKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=2, value=GroupMetadataValue):
    """The key: a classic group."""

    group: String = ""
