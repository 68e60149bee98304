"""FindCoordinator (API key 10): the broker that coordinates a group, transaction or share partition."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, NullableString, Request, String, Struct, field


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], api_key=10, versions="0-6", flexible="3+"):
    """The keys to look up: one up to v3, many from v4 on (KIP-699). v6 adds the keys of share partitions (KIP-932)."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: Array[String] = field("4+", default=())


class Coordinator(Struct):
    """One entry of `coordinators` of FindCoordinatorResponse."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    """The coordinator of the key, or from v4 of each key."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: NullableString = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: Array[Coordinator] = field("4+", default=())
