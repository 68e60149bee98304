"""DeleteShareGroupOffsets (API key 92): deleting start offsets of a share group (KIP-932)."""

from kcore.protocol.schema import ZERO_UUID, Array, Int16, Int32, Message, NullableString, Request, String, Struct, Uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """One entry of `topics` of DeleteShareGroupOffsetsRequest."""

    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(
    Request["DeleteShareGroupOffsetsResponse"], api_key=92, versions="0", flexible="0+"
):
    """The topics whose offsets are deleted from an empty group."""

    group_id: String = ""
    topics: Array[DeleteShareGroupOffsetsRequestTopic] = ()


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """One entry of `responses` of DeleteShareGroupOffsetsResponse."""

    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: NullableString = None


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    """One error code per topic."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: Array[DeleteShareGroupOffsetsResponseTopic] = ()
