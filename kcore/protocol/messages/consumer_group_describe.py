"""ConsumerGroupDescribe (API key 69): description of KIP-848 groups."""

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


class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"], api_key=69, versions="0-1", flexible="0+"):
    """The groups to describe."""

    group_ids: Array[String] = ()
    include_authorized_operations: Bool = False


class TopicPartitions(Struct):
    """One entry of `topic_partitions` of Assignment."""

    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: Array[Int32] = ()


class Assignment(Struct):
    """The value of `assignment` or `target_assignment` of Member."""

    topic_partitions: Array[TopicPartitions] = ()


class Member(Struct):
    """One entry of `members` of DescribedGroup."""

    member_id: String = ""
    instance_id: NullableString = None
    rack_id: NullableString = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Array[String] = ()
    subscribed_topic_regex: NullableString = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: Int8 = field("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    """One entry of `groups` of ConsumerGroupDescribeResponse."""

    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Array[Member] = ()
    authorized_operations: Int32 = -0x80000000


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    """Epochs, members and their current and target assignments; v1 marks classic members (KIP-1099)."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedGroup] = ()
