"""Records of `__share_group_state`, type 1: a change of a share partition's state (KIP-932)."""

from kcore.protocol.records.base import SHARE_GROUP_STATE, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class StateBatch(Struct):
    """One entry of `state_batches` of ShareUpdateValue."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareUpdateValue(RecordValue, versions="0", flexible="0+"):
    """The changes since the snapshot of the same epoch."""

    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: Array[StateBatch] = ()


class ShareUpdateKey(RecordKey, topic=SHARE_GROUP_STATE, record_type=1, value=ShareUpdateValue):
    """The key: a share partition."""

    group_id: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0
