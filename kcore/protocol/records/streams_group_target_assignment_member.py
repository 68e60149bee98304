"""Records of `__consumer_offsets`, type 21: a member's target tasks in a streams group (KIP-1071)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int32, String, Struct


class TaskIds(Struct):
    """One entry of `active_tasks`, `standby_tasks` or `warmup_tasks`."""

    subtopology_id: String = ""
    partitions: Array[Int32] = ()


class StreamsGroupTargetAssignmentMemberValue(RecordValue, versions="0", flexible="0+"):
    """The tasks that the assignor assigned to the member."""

    active_tasks: Array[TaskIds] = ()
    standby_tasks: Array[TaskIds] = ()
    warmup_tasks: Array[TaskIds] = ()


class StreamsGroupTargetAssignmentMemberKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=21, value=StreamsGroupTargetAssignmentMemberValue
):
    """The key: a group and a member."""

    group_id: String = ""
    member_id: String = ""
