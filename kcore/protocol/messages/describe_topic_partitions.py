"""DescribeTopicPartitions (API key 75): the description of topics, page by page (KIP-966)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
)


class TopicRequest(Struct):
    """One entry of `topics` of DescribeTopicPartitionsRequest."""

    name: String = ""


class Cursor(Struct):
    """The value of `cursor` or `next_cursor`."""

    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], api_key=75, versions="0", flexible="0+"
):
    """The topics to describe, and the partition at which the page begins."""

    topics: Array[TopicRequest] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    """One entry of `partitions` of DescribeTopicPartitionsResponseTopic."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: Array[Int32] = ()
    isr_nodes: Array[Int32] = ()
    eligible_leader_replicas: Array[Int32] | None = None
    last_known_elr: Array[Int32] | None = None
    offline_replicas: Array[Int32] = ()


class DescribeTopicPartitionsResponseTopic(Struct):
    """One entry of `topics` of DescribeTopicPartitionsResponse."""

    error_code: Int16 = 0
    name: NullableString = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: Array[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: Int32 = -0x80000000


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    """Partitions with eligible leaders, and the partition at which the next page begins."""

    throttle_time_ms: Int32 = 0
    topics: Array[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: Cursor | None = None
