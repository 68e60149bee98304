"""CreateTopics (API key 19): creating topics (KIP-4)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
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


class CreatableReplicaAssignment(Struct):
    """One entry of `assignments` of CreatableTopic."""

    partition_index: Int32 = 0
    broker_ids: Array[Int32] = ()


class CreatableTopicConfig(Struct):
    """One entry of `configs` of CreatableTopic."""

    name: String = ""
    value: NullableString = ""


class CreatableTopic(Struct):
    """One entry of `topics` of CreateTopicsRequest."""

    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: Array[CreatableReplicaAssignment] = ()
    configs: Array[CreatableTopicConfig] = ()


class CreateTopicsRequest(Request["CreateTopicsResponse"], api_key=19, versions="2-7", flexible="5+"):
    """Topics to create, with partition counts, replica assignments and settings."""

    topics: Array[CreatableTopic] = ()
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    """One entry of `configs` of CreatableTopicResult."""

    name: String = ""
    value: NullableString = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    """One entry of `topics` of CreateTopicsResponse."""

    name: String = ""
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = 0
    error_message: NullableString = ""
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: Array[CreatableTopicConfigs] | None = field("5+", default=(), ignorable=True)


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    """One result per topic; v5 adds the effective settings (KIP-525), v7 the topic id (KIP-516)."""

    throttle_time_ms: Int32 = 0
    topics: Array[CreatableTopicResult] = ()
