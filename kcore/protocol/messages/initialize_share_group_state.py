"""InitializeShareGroupState (API key 83): the first state of a share partition, for the share coordinator (KIP-932)."""

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
)


class PartitionData(Struct):
    """One entry of `partitions` of InitializeStateData."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    """One entry of `topics` of InitializeShareGroupStateRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class InitializeShareGroupStateRequest(
    Request["InitializeShareGroupStateResponse"], api_key=83, versions="0", flexible="0+"
):
    """The start offset and the new state epoch of each share partition."""

    group_id: String = ""
    topics: Array[InitializeStateData] = ()


class PartitionResult(Struct):
    """One entry of `partitions` of InitializeStateResult."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class InitializeStateResult(Struct):
    """One entry of `results` of InitializeShareGroupStateResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionResult] = ()


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    """One error code per partition."""

    results: Array[InitializeStateResult] = ()
