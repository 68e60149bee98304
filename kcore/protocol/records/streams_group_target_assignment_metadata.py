"""Records of `__consumer_offsets`, type 20: the epoch of the target assignment of a streams group (KIP-1071)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Int32, Int64, String, field


class StreamsGroupTargetAssignmentMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(default=0, tag=0)


class StreamsGroupTargetAssignmentMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=20, value=StreamsGroupTargetAssignmentMetadataValue
):
    """The key: a group."""

    group_id: String = ""
