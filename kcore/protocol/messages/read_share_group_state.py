"""ReadShareGroupState (API key 84): reading a share partition's state from the share coordinator (KIP-932)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
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
)


class PartitionData(Struct):
    """One entry of `partitions` of ReadStateData."""

    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    """One entry of `topics` of ReadShareGroupStateRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"], api_key=84, versions="0", flexible="0+"):
    """A share-partition leader's request for the state of share partitions."""

    group_id: String = ""
    topics: Array[ReadStateData] = ()


class StateBatch(Struct):
    """One entry of `state_batches` of PartitionResult."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Struct):
    """One entry of `partitions` of ReadStateResult."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: Array[StateBatch] = ()


class ReadStateResult(Struct):
    """One entry of `results` of ReadShareGroupStateResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionResult] = ()


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    """The start offset and delivery states of each partition."""

    results: Array[ReadStateResult] = ()
