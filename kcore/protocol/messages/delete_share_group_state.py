"""DeleteShareGroupState (API key 86): deleting a share partition's state in the share coordinator (KIP-932)."""

from kcore.protocol.schema import ZERO_UUID, Array, Int16, Int32, Message, NullableString, Request, String, Struct, Uuid


class PartitionData(Struct):
    """One entry of `partitions` of DeleteStateData."""

    partition: Int32 = 0


class DeleteStateData(Struct):
    """One entry of `topics` of DeleteShareGroupStateRequest."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionData] = ()


class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"], api_key=86, versions="0", flexible="0+"):
    """The share partitions whose state is deleted."""

    group_id: String = ""
    topics: Array[DeleteStateData] = ()


class PartitionResult(Struct):
    """One entry of `partitions` of DeleteStateResult."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class DeleteStateResult(Struct):
    """One entry of `results` of DeleteShareGroupStateResponse."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[PartitionResult] = ()


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    """One error code per partition."""

    results: Array[DeleteStateResult] = ()
