"""DeleteTopics (API key 20): deleting topics (KIP-4)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class DeleteTopicState(Struct):
    """One entry of `topics` of DeleteTopicsRequest."""

    name: NullableString = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], api_key=20, versions="1-6", flexible="4+"):
    """Topics to delete, by name or, from v6, by id (KIP-516)."""

    topics: Array[DeleteTopicState] = field("6+", default=())
    topic_names: Array[String] = field("0-5", default=(), ignorable=True)
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    """One entry of `responses` of DeleteTopicsResponse."""

    name: NullableString = field(default="", nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = 0
    error_message: NullableString = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    """One result per topic."""

    throttle_time_ms: Int32 = 0
    responses: Array[DeletableTopicResult] = ()
