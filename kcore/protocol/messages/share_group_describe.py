"""ShareGroupDescribe (API key 77): the description of share groups (KIP-932)."""

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


class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"], api_key=77, versions="1", flexible="0+"):
    """The groups to describe."""

    group_ids: Array[String] = ()
    include_authorized_operations: Bool = False


class TopicPartitions(Struct):
    """One entry of `topic_partitions` of Assignment."""

    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: Array[Int32] = ()


class Assignment(Struct):
    """The value of `assignment` of Member."""

    topic_partitions: Array[TopicPartitions] = ()


class Member(Struct):
    """One entry of `members` of DescribedGroup."""

    member_id: String = ""
    rack_id: NullableString = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Array[String] = ()
    assignment: Assignment = field(default_factory=Assignment)


class DescribedGroup(Struct):
    """One entry of `groups` of ShareGroupDescribeResponse."""

    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Array[Member] = ()
    authorized_operations: Int32 = -0x80000000


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    """Epochs, members and their assignments."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedGroup] = ()
