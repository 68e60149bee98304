"""Metadata (API key 3): brokers, topics and leaders."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
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


class MetadataRequestTopic(Struct):
    """One entry of `topics` of MetadataRequest."""

    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: NullableString = field(default="", nullable="10+")


class MetadataRequest(Request["MetadataResponse"], api_key=3, versions="0-13", flexible="9+"):
    """A request for topics by name or, from v12, by id (KIP-516); v8 can request authorized operations (KIP-430)."""

    topics: Array[MetadataRequestTopic] | None = field(default=(), nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataResponseBroker(Struct):
    """One entry of `brokers` of MetadataResponse."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """One entry of `partitions` of MetadataResponseTopic."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: Array[Int32] = ()
    isr_nodes: Array[Int32] = ()
    offline_replicas: Array[Int32] = field("5+", default=(), ignorable=True)


class MetadataResponseTopic(Struct):
    """One entry of `topics` of MetadataResponse."""

    error_code: Int16 = 0
    name: NullableString = field(default="", nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: Array[MetadataResponsePartition] = ()
    topic_authorized_operations: Int32 = field("8+", default=-0x80000000)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    """Brokers, controller and topics; v7 adds leader epochs (KIP-320), v10 topic ids (KIP-516)."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: Array[MetadataResponseBroker] = ()
    cluster_id: NullableString = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: Array[MetadataResponseTopic] = ()
    cluster_authorized_operations: Int32 = field("8-10", default=-0x80000000)
    error_code: Int16 = field("13+", default=0, ignorable=True)
