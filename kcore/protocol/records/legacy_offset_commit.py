"""Records of `__consumer_offsets`, type 0: committed offsets of the oldest record type."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Int32, Int64, String


class LegacyOffsetCommitValue(RecordValue, versions="0"):
    """The value that Kafka's first versions wrote. `decode_value` reads such values as OffsetCommitValue instead."""

    offset: Int64 = 0
    metadata: String = ""
    commit_timestamp: Int64 = 0


class LegacyOffsetCommitKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=0, value=LegacyOffsetCommitValue):
    """The key of a committed offset in the oldest record type; it has the fields of OffsetCommitKey."""

    group: String = ""
    topic: String = ""
    partition: Int32 = 0
