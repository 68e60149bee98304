"""ShareAcknowledge (API key 79): acknowledging records of a share group (KIP-932)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class AcknowledgementBatch(Struct):
    """One entry of `acknowledgement_batches` of AcknowledgePartition."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: Array[Int8] = ()


class AcknowledgePartition(Struct):
    """One entry of `partitions` of AcknowledgeTopic."""

    partition_index: Int32 = 0
    acknowledgement_batches: Array[AcknowledgementBatch] = ()


class AcknowledgeTopic(Struct):
    """One entry of `topics` of ShareAcknowledgeRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[AcknowledgePartition] = ()


class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"], api_key=79, versions="1-2", flexible="0+"):
    """Ranges of offsets with their acknowledgements; v2 can renew locks (KIP-1222)."""

    group_id: NullableString = None
    member_id: NullableString = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Bool = field("2+", default=False)
    topics: Array[AcknowledgeTopic] = ()


class LeaderIdAndEpoch(Struct):
    """The value of `current_leader` of PartitionData."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionData(Struct):
    """One entry of `partitions` of ShareAcknowledgeTopicResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    """One entry of `responses` of ShareAcknowledgeResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class NodeEndpoint(Struct):
    """One entry of `node_endpoints` of ShareAcknowledgeResponse."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    """An error code for each partition. v2 adds the timeout of acquisition locks (KIP-1222)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: Array[ShareAcknowledgeTopicResponse] = ()
    node_endpoints: Array[NodeEndpoint] = ()
