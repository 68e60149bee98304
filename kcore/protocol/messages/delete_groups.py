"""DeleteGroups (API key 42): deleting empty groups."""

from kcore.protocol.schema import Array, Int16, Int32, Message, Request, String, Struct


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], api_key=42, versions="0-2", flexible="2+"):
    """The groups to delete (KIP-229)."""

    groups_names: Array[String] = ()


class DeletableGroupResult(Struct):
    """One entry of `results` of DeleteGroupsResponse."""

    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    """One error code per group."""

    throttle_time_ms: Int32 = 0
    results: Array[DeletableGroupResult] = ()
