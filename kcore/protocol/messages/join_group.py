"""JoinGroup (API key 11): joining a classic group."""

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


class JoinGroupRequestProtocol(Struct):
    """One entry of `protocols` of JoinGroupRequest."""

    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Request["JoinGroupResponse"], api_key=11, versions="0-9", flexible="6+"):
    """A request to join, with the member's protocols.

    From v4, the response to a new member's first request only assigns a member id (KIP-394). v5 adds the group instance
    id (KIP-345), v8 the reason for joining (KIP-800).
    """

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = ""
    group_instance_id: NullableString = field("5+", default=None)
    protocol_type: String = ""
    protocols: Array[JoinGroupRequestProtocol] = ()
    reason: NullableString = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """One entry of `members` of JoinGroupResponse."""

    member_id: String = ""
    group_instance_id: NullableString = field("5+", default=None, ignorable=True)
    metadata: Bytes = b""


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    """The generation and the leader of the group. Only the response to the leader has the members.

    If `skip_assignment` is set (v9), the leader does not compute a new assignment (KIP-814).
    """

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: NullableString = field("7+", default=None, ignorable=True)
    protocol_name: NullableString = field(default="", nullable="7+")
    leader: String = ""
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = ""
    members: Array[JoinGroupResponseMember] = ()
