"""Records of `__consumer_offsets`, type 14: a member's current assignment in a share group (KIP-932)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int8, Int32, String, Struct, Uuid


class TopicPartitions(Struct):
    """One entry of `assigned_partitions` of ShareGroupCurrentMemberAssignmentValue."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()


class ShareGroupCurrentMemberAssignmentValue(RecordValue, versions="0", flexible="0+"):
    """The member's epochs, state and partitions."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Array[TopicPartitions] = ()


class ShareGroupCurrentMemberAssignmentKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=14, value=ShareGroupCurrentMemberAssignmentValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
