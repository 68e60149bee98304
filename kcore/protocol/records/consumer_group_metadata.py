"""Records of `__consumer_offsets`, type 3: the group epoch of a KIP-848 group."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import Int32, Int64, String, field


class ConsumerGroupMetadataValue(RecordValue, versions="0", flexible="0+"):
    """The group epoch and the hash of the subscribed topics' metadata."""

    epoch: Int32 = 0
    metadata_hash: Int64 = field(default=0, tag=0)


class ConsumerGroupMetadataKey(RecordKey, topic=CONSUMER_OFFSETS, record_type=3, value=ConsumerGroupMetadataValue):
    """The key: a group."""

    group_id: String = ""
