"""ReadShareGroupStateSummary (API key 87): a share partition's state without the delivery states (KIP-932)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
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


class PartitionData(Struct):
    """One entry of `partitions` of ReadStateSummaryData."""

    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    """One entry of `topics` of ReadShareGroupStateSummaryRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class ReadShareGroupStateSummaryRequest(
    Request["ReadShareGroupStateSummaryResponse"], api_key=87, versions="0-1", flexible="0+"
):
    """The share partitions whose state is summarized."""

    group_id: String = ""
    topics: Array[ReadStateSummaryData] = ()


class PartitionResult(Struct):
    """One entry of `partitions` of ReadStateSummaryResult."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    """One entry of `results` of ReadShareGroupStateSummaryResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionResult] = ()


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    """Epochs and start offset; v1 adds the count of completed deliveries (KIP-1226)."""

    results: Array[ReadStateSummaryResult] = ()
