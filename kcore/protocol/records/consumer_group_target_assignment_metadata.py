"""Records of `__consumer_offsets`, type 6: the epoch of the target assignment of a KIP-848 group."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Int32, Int64, String, field


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(default=0, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=6, value=ConsumerGroupTargetAssignmentMetadataValue
):
    """The key: a group."""

    group_id: String = ""
