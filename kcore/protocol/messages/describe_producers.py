"""DescribeProducers (API key 61): producers of a partition (KIP-664)."""

from kcore.protocol.schema import Array, Int16, Int32, Int64, Message, NullableString, Request, String, Struct


class TopicRequest(Struct):
    """One entry of `topics` of DescribeProducersRequest."""

    name: String = ""
    partition_indexes: Array[Int32] = ()


class DescribeProducersRequest(Request["DescribeProducersResponse"], api_key=61, versions="0", flexible="0+"):
    """The partitions whose producers are described."""

    topics: Array[TopicRequest] = ()


class ProducerState(Struct):
    """One entry of `active_producers` of PartitionResponse."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    """One entry of `partitions` of TopicResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    active_producers: Array[ProducerState] = ()


class TopicResponse(Struct):
    """One entry of `topics` of DescribeProducersResponse."""

    name: String = ""
    partitions: Array[PartitionResponse] = ()


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """State of each active producer."""

    throttle_time_ms: Int32 = 0
    topics: Array[TopicResponse] = ()
