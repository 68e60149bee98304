"""Records of `__consumer_offsets`, type 15: the share partitions of a share group that have state (KIP-932)."""

from kcore.protocol.records.base import CONSUMER_OFFSETS, RecordKey, RecordValue
from kcore.protocol.schema import ZERO_UUID, Array, Int32, String, Struct, Uuid


class TopicPartitionsInfo(Struct):
    """One entry of `initializing_topics` or `initialized_topics` of ShareGroupStatePartitionMetadataValue."""

    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: Array[Int32] = ()


class TopicInfo(Struct):
    """One entry of `deleting_topics` of ShareGroupStatePartitionMetadataValue."""

    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""


class ShareGroupStatePartitionMetadataValue(RecordValue, versions="0", flexible="0+"):
    """Topics whose share partitions are being initialized, are initialized, or are being deleted."""

    initializing_topics: Array[TopicPartitionsInfo] = ()
    initialized_topics: Array[TopicPartitionsInfo] = ()
    deleting_topics: Array[TopicInfo] = ()


class ShareGroupStatePartitionMetadataKey(
    RecordKey, topic=CONSUMER_OFFSETS, record_type=15, value=ShareGroupStatePartitionMetadataValue
):
    """The key: a group."""

    group_id: String = ""
