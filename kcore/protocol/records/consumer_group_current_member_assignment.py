"""Records of `__consumer_offsets`, type 8: a member's current assignment in a KIP-848 group."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int8, Int32, String, Struct, Uuid, field


class TopicPartitions(Struct):
    """One entry of `assigned_partitions` or `partitions_pending_revocation`."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()
    assignment_epochs: Array[Int32] | None = field(default=(), tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue, versions="0", flexible="0+"):
    """The member's epochs, state and partitions."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Array[TopicPartitions] = ()
    partitions_pending_revocation: Array[TopicPartitions] = ()


class ConsumerGroupCurrentMemberAssignmentKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=8, value=ConsumerGroupCurrentMemberAssignmentValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
