"""BrokerHeartbeat (API key 63): the state that a node requests (KIP-631)."""

from kcore.protocol.schema import Array, Bool, Int16, Int32, Int64, Message, Request, Uuid, field


class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"], api_key=63, versions="0-2", flexible="0+"):
    """The node and its requested state; v1 adds the failed log directories (KIP-858), v2 the cordoned directories."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Array[Uuid] = field("1+", default=(), tag=0)
    cordoned_log_dirs: Array[Uuid] | None = field("2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    """The state that the controller allows."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
