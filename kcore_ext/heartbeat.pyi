from typing import Any

from kcore_ext.quick_heartbeat import QuickHeartbeat

class HeartbeatCore(QuickHeartbeat):
    """What `HeartbeatApi` does for a dynamic member of a classic group's present generation, and for every other
    request as its own `handle_any` and `decide_any` say.

    Args:
        shards: the group shards.
        authorizer: who may do what; with one, the checks in front are the plain ones.
        request: the class of the request.
        machine: the class of a shard's state machine.
        group: the class of classic groups.
        member: the class of its members.
        dead: the state of a group that is gone.
    """

    def __init__(
        self, shards: Any, authorizer: Any, *, request: type, machine: type, group: type, member: type, dead: object
    ) -> None: ...
