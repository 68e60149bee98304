"""ListGroups (API key 16): the groups of a broker."""

from kcore.protocol.schema import Array, Int16, Int32, Message, Request, String, Struct, field


class ListGroupsRequest(Request["ListGroupsResponse"], api_key=16, versions="0-5", flexible="3+"):
    """A request for all groups of a broker; v4 can filter by state (KIP-518), v5 by type (KIP-848)."""

    states_filter: Array[String] = field("4+", default=())
    types_filter: Array[String] = field("5+", default=())


class ListedGroup(Struct):
    """One entry of `groups` of ListGroupsResponse."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: String = field("4+", default="", ignorable=True)
    group_type: String = field("5+", default="", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    """Group ids with protocol types; v4 adds the states, v5 the group types."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = 0
    groups: Array[ListedGroup] = ()
