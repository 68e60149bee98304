"""Records of `__consumer_offsets`, type 7: a member's target assignment in a KIP-848 group."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int32, String, Struct, Uuid


class TopicPartition(Struct):
    """One entry of `topic_partitions` of ConsumerGroupTargetAssignmentMemberValue."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()


class ConsumerGroupTargetAssignmentMemberValue(RecordValue, versions="0", flexible="0+"):
    """The partitions that the assignor assigned to the member."""

    topic_partitions: Array[TopicPartition] = ()


class ConsumerGroupTargetAssignmentMemberKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=7, value=ConsumerGroupTargetAssignmentMemberValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
