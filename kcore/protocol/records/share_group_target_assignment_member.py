"""Records of `__consumer_offsets`, type 13: a member's target assignment in a share group (KIP-932)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int32, String, Struct, Uuid


class TopicPartition(Struct):
    """One entry of `topic_partitions` of ShareGroupTargetAssignmentMemberValue."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()


class ShareGroupTargetAssignmentMemberValue(RecordValue, versions="0", flexible="0+"):
    """The partitions that the assignor assigned to the member."""

    topic_partitions: Array[TopicPartition] = ()


class ShareGroupTargetAssignmentMemberKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=13, value=ShareGroupTargetAssignmentMemberValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
