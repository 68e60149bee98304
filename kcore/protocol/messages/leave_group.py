"""LeaveGroup (API key 13): leaving a classic group."""

from kcore.protocol.schema import Array, Int16, Int32, Message, NullableString, Request, String, Struct, field


class MemberIdentity(Struct):
    """One entry of `members` of LeaveGroupRequest."""

    member_id: String = ""
    group_instance_id: NullableString = None
    reason: NullableString = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(Request["LeaveGroupResponse"], api_key=13, versions="0-5", flexible="4+"):
    """The leaving members: one up to v2, several from v3 on (KIP-345). v5 adds the reason for leaving (KIP-800)."""

    group_id: String = ""
    member_id: String = field("0-2", default="")
    members: Array[MemberIdentity] = field("3+", default=())


class MemberResponse(Struct):
    """One entry of `members` of LeaveGroupResponse."""

    member_id: String = ""
    group_instance_id: NullableString = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    """The error of the request and, from v3, of each member."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = 0
    members: Array[MemberResponse] = field("3+", default=())
