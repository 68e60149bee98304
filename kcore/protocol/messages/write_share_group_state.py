"""WriteShareGroupState (API key 85): writing a share partition's state to the share coordinator (KIP-932)."""

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
    field,
)


class StateBatch(Struct):
    """One entry of `state_batches` of PartitionData."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    """One entry of `partitions` of WriteStateData."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: Array[StateBatch] = ()


class WriteStateData(Struct):
    """One entry of `topics` of WriteShareGroupStateRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"], api_key=85, versions="0-1", flexible="0+"):
    """New delivery states; v1 adds the count of completed deliveries (KIP-1226)."""

    group_id: String = ""
    topics: Array[WriteStateData] = ()


class PartitionResult(Struct):
    """One entry of `partitions` of WriteStateResult."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class WriteStateResult(Struct):
    """One entry of `results` of WriteShareGroupStateResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionResult] = ()


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    """One error code per partition."""

    results: Array[WriteStateResult] = ()
