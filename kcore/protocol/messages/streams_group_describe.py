"""StreamsGroupDescribe (API key 89): the description of streams groups (KIP-1071)."""

from kcore.protocol.schema import (
    Array,
    Bool,
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


class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"], api_key=89, versions="0", flexible="0+"):
    """The groups to describe."""

    group_ids: Array[String] = ()
    include_authorized_operations: Bool = False


class KeyValue(Struct):
    """One entry of `topic_configs` of TopicInfo or `client_tags` of Member."""

    key: String = ""
    value: String = ""


class TopicInfo(Struct):
    """One entry of `state_changelog_topics` or `repartition_source_topics` of Subtopology."""

    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: Array[KeyValue] = ()


class Subtopology(Struct):
    """One entry of `subtopologies` of Topology."""

    subtopology_id: String = ""
    source_topics: Array[String] = ()
    repartition_sink_topics: Array[String] = ()
    state_changelog_topics: Array[TopicInfo] = ()
    repartition_source_topics: Array[TopicInfo] = ()


class Topology(Struct):
    """The value of `topology` of DescribedGroup."""

    epoch: Int32 = 0
    subtopologies: Array[Subtopology] | None = None


class Endpoint(Struct):
    """The value of `user_endpoint` of Member."""

    host: String = ""
    port: UInt16 = 0


class TaskOffset(Struct):
    """One entry of `task_offsets` or `task_end_offsets` of Member."""

    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class TaskIds(Struct):
    """One entry of `active_tasks`, `standby_tasks` or `warmup_tasks` of Assignment."""

    subtopology_id: String = ""
    partitions: Array[Int32] = ()


class Assignment(Struct):
    """The value of `assignment` or `target_assignment` of Member."""

    active_tasks: Array[TaskIds] = ()
    standby_tasks: Array[TaskIds] = ()
    warmup_tasks: Array[TaskIds] = ()


class Member(Struct):
    """One entry of `members` of DescribedGroup."""

    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    client_id: String = ""
    client_host: String = ""
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue] = ()
    task_offsets: Array[TaskOffset] = ()
    task_end_offsets: Array[TaskOffset] = ()
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    is_classic: Bool = False


class DescribedGroup(Struct):
    """One entry of `groups` of StreamsGroupDescribeResponse."""

    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = None
    members: Array[Member] = ()
    authorized_operations: Int32 = -0x80000000


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0", flexible="0+"):
    """Epochs, topology, members and their current and target tasks."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedGroup] = ()
