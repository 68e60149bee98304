"""ShareFetch (API key 78): reading records of a share group (KIP-932)."""

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
    Records,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class AcknowledgementBatch(Struct):
    """One entry of `acknowledgement_batches` of FetchPartition."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: Array[Int8] = ()


class FetchPartition(Struct):
    """One entry of `partitions` of FetchTopic."""

    partition_index: Int32 = 0
    acknowledgement_batches: Array[AcknowledgementBatch] = ()


class FetchTopic(Struct):
    """One entry of `topics` of ShareFetchRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[FetchPartition] = ()


class ForgottenTopic(Struct):
    """One entry of `forgotten_topics_data` of ShareFetchRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()


class ShareFetchRequest(Request["ShareFetchResponse"], api_key=78, versions="1-2", flexible="0+"):
    """A request for records that also acknowledges earlier records; v2 adds acquire modes (KIP-1206) and renewals
    (KIP-1222).
    """

    group_id: NullableString = None
    member_id: NullableString = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    is_renew_ack: Bool = field("2+", default=False)
    topics: Array[FetchTopic] = ()
    forgotten_topics_data: Array[ForgottenTopic] = ()


class LeaderIdAndEpoch(Struct):
    """The value of `current_leader` of PartitionData."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Struct):
    """One entry of `acquired_records` of PartitionData."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    """One entry of `partitions` of ShareFetchableTopicResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: NullableString = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    records: Records = b""
    acquired_records: Array[AcquiredRecords] = ()


class ShareFetchableTopicResponse(Struct):
    """One entry of `responses` of ShareFetchResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class NodeEndpoint(Struct):
    """One entry of `node_endpoints` of ShareFetchResponse."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    """The records, and the ranges of offsets that the member has acquired."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: Array[ShareFetchableTopicResponse] = ()
    node_endpoints: Array[NodeEndpoint] = ()
