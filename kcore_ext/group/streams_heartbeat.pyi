from typing import Any

from kcore_ext.group.heartbeat import EpochFastPath

class StreamsHeartbeatFastPath(EpochFastPath):
    """The fast path of StreamsGroupHeartbeat.

    It serves members whose last heartbeat changed nothing and whose last response had no status.

    Args:
        api: the API, for responses that wait for a commit.
        shards: the group shards.
        authorizer: checks the permission to READ a group; None allows all requests.
        read: the tuple (`Operation.READ`, `ResourceType.GROUP`).
        denied: the response to a client that may not READ the group.
        services: the setting that enables the protocol, and the settings of groups.
        request: the class of the request.
        response: the class of the response.
        context: the class of request contexts, a named tuple.
        settings: the class of a group's settings, a named tuple.
        machine: the class of a shard's state machine.
        group: the class of streams groups.
        member: the class of members of streams groups.
        metadata: the class of a member's metadata, a named tuple.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        authorizer: Any,
        read: tuple[Any, Any],
        denied: Any,
        *,
        services: Any,
        request: type,
        response: type,
        context: type,
        settings: type,
        machine: type,
        group: type,
        member: type,
        metadata: type,
    ) -> None: ...
    def serve(self, context: Any, request: Any) -> Any:
        """Restarts the member's session timeout.

        Returns:
            The response; a `Pending` if the response waits for a commit; or None, without any change, if the generic
            path must serve the request.
        """
