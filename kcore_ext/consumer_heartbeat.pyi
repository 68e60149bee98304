from typing import Any

from kcore_ext.quick_heartbeat import QuickHeartbeat

class ConsumerHeartbeatCore(QuickHeartbeat):
    """What `ConsumerGroupHeartbeatApi` does for a member at rest in a group at rest, and for every other request as its
    own `handle_any` and `decide_any` say.

    Args:
        shards: the group shards.
        services: whether the protocol is on, and the settings of groups.
        authorizer: who may do what; with one, the checks in front are the plain ones.
        request: the class of the request.
        response: the class of the response.
        context: the class of who asks, a named tuple.
        settings: the class of a group's settings, a named tuple.
        machine: the class of a shard's state machine.
        group: the class of consumer groups.
        subscriptions: the class of what a group reads.
        member: the class of its members.
        metadata: the class of what a member says of itself.
    """

    _services: Any

    def __init__(
        self,
        shards: Any,
        services: Any,
        authorizer: Any,
        *,
        request: type,
        response: type,
        context: type,
        settings: type,
        machine: type,
        group: type,
        subscriptions: type,
        member: type,
        metadata: type,
    ) -> None: ...
