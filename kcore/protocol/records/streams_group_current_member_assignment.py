"""Records of `__consumer_offsets`, type 22: a member's current tasks in a streams group (KIP-1071)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int8, Int32, String, Struct, field


class TaskIds(Struct):
    """One entry of `active_tasks`, `standby_tasks`, `warmup_tasks`, `active_tasks_pending_revocation`,
    `standby_tasks_pending_revocation` or `warmup_tasks_pending_revocation`.
    """

    subtopology_id: String = ""
    partitions: Array[Int32] = ()
    assignment_epochs: Array[Int32] | None = field(default=(), tag=0)


class StreamsGroupCurrentMemberAssignmentValue(RecordValue, versions="0", flexible="0+"):
    """The member's epochs, state and tasks."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: Array[TaskIds] = ()
    standby_tasks: Array[TaskIds] = ()
    warmup_tasks: Array[TaskIds] = ()
    active_tasks_pending_revocation: Array[TaskIds] = ()
    standby_tasks_pending_revocation: Array[TaskIds] = ()
    warmup_tasks_pending_revocation: Array[TaskIds] = ()


class StreamsGroupCurrentMemberAssignmentKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=22, value=StreamsGroupCurrentMemberAssignmentValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
