"""Produce (API key 0): appending records."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableRecords,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class PartitionProduceData(Struct):
    """One entry of `partition_data` of TopicProduceData."""

    index: Int32 = 0
    records: NullableRecords = None


class TopicProduceData(Struct):
    """One entry of `topic_data` of ProduceRequest."""

    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_data: Array[PartitionProduceData] = ()


class ProduceRequest(Request["ProduceResponse"], api_key=0, versions="3-13", flexible="9+"):
    """Batches to append. From v10, the response may name the current leader (KIP-951). From v12, the server adds the
    partitions to the transaction (KIP-890). v13 names topics by id.
    """

    transactional_id: NullableString = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: Array[TopicProduceData] = ()


class BatchIndexAndErrorMessage(Struct):
    """One entry of `record_errors` of PartitionProduceResponse."""

    batch_index: Int32 = 0
    batch_index_error_message: NullableString = None


class LeaderIdAndEpoch(Struct):
    """The value of `current_leader` of PartitionProduceResponse."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    """One entry of `partition_responses` of TopicProduceResponse."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: Array[BatchIndexAndErrorMessage] = field("8+", default=(), ignorable=True)
    error_message: NullableString = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", default_factory=LeaderIdAndEpoch, tag=0)


class TopicProduceResponse(Struct):
    """One entry of `responses` of ProduceResponse."""

    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: Array[PartitionProduceResponse] = ()


class NodeEndpoint(Struct):
    """One entry of `node_endpoints` of ProduceResponse."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    """Base offsets and errors per partition; v8 lists invalid records (KIP-467), v10 adds current leaders (KIP-951)."""

    responses: Array[TopicProduceResponse] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Array[NodeEndpoint] = field("10+", default=(), tag=0)
