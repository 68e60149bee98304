"""StreamsGroupHeartbeat (API key 88): joining, keeping and leaving a streams group (KIP-1071)."""

from kcore.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    UInt16,
    field,
)


class KeyValue(Struct):
    """One entry of `topic_configs` of TopicInfo or `client_tags` of StreamsGroupHeartbeatRequest."""

    key: String = ""
    value: String = ""


class TopicInfo(Struct):
    """One entry of `state_changelog_topics` or `repartition_source_topics` of Subtopology."""

    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: Array[KeyValue] = ()


class CopartitionGroup(Struct):
    """One entry of `copartition_groups` of Subtopology."""

    source_topics: Array[Int16] = ()
    source_topic_regex: Array[Int16] = ()
    repartition_source_topics: Array[Int16] = ()


class Subtopology(Struct):
    """One entry of `subtopologies` of Topology."""

    subtopology_id: String = ""
    source_topics: Array[String] = ()
    source_topic_regex: Array[String] = ()
    state_changelog_topics: Array[TopicInfo] = ()
    repartition_sink_topics: Array[String] = ()
    repartition_source_topics: Array[TopicInfo] = ()
    copartition_groups: Array[CopartitionGroup] = ()


class Topology(Struct):
    """The value of `topology` of StreamsGroupHeartbeatRequest."""

    epoch: Int32 = 0
    subtopologies: Array[Subtopology] = ()


class TaskIds(Struct):
    """One entry of `active_tasks`, `standby_tasks` or `warmup_tasks`."""

    subtopology_id: String = ""
    partitions: Array[Int32] = ()


class Endpoint(Struct):
    """The value of `user_endpoint` of StreamsGroupHeartbeatRequest and EndpointToPartitions."""

    host: String = ""
    port: UInt16 = 0


class TaskOffset(Struct):
    """One entry of `task_offsets` or `task_end_offsets` of StreamsGroupHeartbeatRequest."""

    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"], api_key=88, versions="0", flexible="0+"):
    """A heartbeat, whose member epoch determines if the member joins, stays or leaves. It reports the member's topology
    and tasks.
    """

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: Array[TaskIds] | None = None
    standby_tasks: Array[TaskIds] | None = None
    warmup_tasks: Array[TaskIds] | None = None
    process_id: NullableString = None
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue] | None = None
    task_offsets: Array[TaskOffset] | None = None
    task_end_offsets: Array[TaskOffset] | None = None
    shutdown_application: Bool = False


class Status(Struct):
    """One entry of `status` of StreamsGroupHeartbeatResponse."""

    status_code: Int8 = 0
    status_detail: String = ""


class TopicPartition(Struct):
    """One entry of `active_partitions` or `standby_partitions` of EndpointToPartitions."""

    topic: String = ""
    partitions: Array[Int32] = ()


class EndpointToPartitions(Struct):
    """One entry of `partitions_by_user_endpoint` of StreamsGroupHeartbeatResponse."""

    user_endpoint: Endpoint = field(default_factory=Endpoint)
    active_partitions: Array[TopicPartition] = ()
    standby_partitions: Array[TopicPartition] = ()


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0", flexible="0+"):
    """The member's epoch and tasks, and the endpoints of the other members."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: Array[Status] | None = ()
    active_tasks: Array[TaskIds] | None = None
    standby_tasks: Array[TaskIds] | None = None
    warmup_tasks: Array[TaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: Array[EndpointToPartitions] | None = None
