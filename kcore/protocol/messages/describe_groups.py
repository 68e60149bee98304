"""DescribeGroups (API key 15): the description of classic groups."""

from kcore.protocol.schema import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    field,
)


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], api_key=15, versions="0-6", flexible="5+"):
    """The groups to describe; v3 can request authorized operations (KIP-430)."""

    groups: Array[String] = ()
    include_authorized_operations: Bool = field("3+", default=False)


class DescribedGroupMember(Struct):
    """One entry of `members` of DescribedGroup."""

    member_id: String = ""
    group_instance_id: NullableString = field("4+", default=None, ignorable=True)
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    """One entry of `groups` of DescribeGroupsResponse."""

    error_code: Int16 = 0
    error_message: NullableString = field("6+", default=None)
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: Array[DescribedGroupMember] = ()
    authorized_operations: Int32 = field("3+", default=-0x80000000)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    """State, protocol and members of each group; v4 adds group instance ids (KIP-345), v6 error messages (KIP-1043)."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: Array[DescribedGroup] = ()
