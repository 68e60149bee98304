"""Records of `__consumer_offsets`, type 4: the topics of a KIP-848 group, as Kafka stored them before 4.1."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int32, String, Struct, Uuid


class PartitionMetadata(Struct):
    """One entry of `partition_metadata` of TopicMetadata."""

    partition: Int32 = 0
    racks: Array[String] = ()


class TopicMetadata(Struct):
    """One entry of `topics` of ConsumerGroupPartitionMetadataValue."""

    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: Array[PartitionMetadata] = ()


class ConsumerGroupPartitionMetadataValue(RecordValue, versions="0", flexible="0+"):
    """Topics with partition counts and racks. Kafka 4.1 reads these records and no longer writes them."""

    topics: Array[TopicMetadata] = ()


class ConsumerGroupPartitionMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=4, value=ConsumerGroupPartitionMetadataValue
):
    """The key: a group."""

    group_id: String = ""
