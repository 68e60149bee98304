from collections.abc import Mapping
from typing import Any

class GroupFastPath:
    """The common part of the fast paths of all heartbeat APIs: look-up of the group's shard, and authorization.

    Args:
        api: the API, for responses that wait for a commit.
        shards: the group shards.
        authorizer: checks the permission to READ a group; None allows all requests.
        read: the tuple (`Operation.READ`, `ResourceType.GROUP`).
        denied: the response to a client that may not READ the group.
        request: the class of the request.
        fields: the fields of the request that the fast path reads, by index; index 0 is the group id.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        authorizer: Any,
        read: tuple[Any, Any],
        denied: Any,
        request: type,
        fields: Mapping[int, str],
    ) -> None: ...
    @property
    def served(self) -> int:
        """The number of requests that the fast path has served."""

class EpochFastPath(GroupFastPath):
    """The common part of the fast paths of heartbeats with member epochs: group settings, client id and host.

    Args:
        api: the API, for responses that wait for a commit.
        shards: the group shards.
        authorizer: checks the permission to READ a group; None allows all requests.
        read: the tuple (`Operation.READ`, `ResourceType.GROUP`).
        denied: the response to a client that may not READ the group.
        request: the class of the request.
        fields: the fields of the request that the fast path reads, by index; index 0 is the group id.
        services: the setting that enables the protocol, and the settings of groups.
        context: the class of request contexts, a named tuple.
        settings: the class of a group's settings, a named tuple.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        authorizer: Any,
        read: tuple[Any, Any],
        denied: Any,
        request: type,
        fields: Mapping[int, str],
        services: Any,
        context: type,
        settings: type,
    ) -> None: ...

class TupleMetadata:
    """A comparison of the client id and host of a request with the values in a member's metadata.

    Args:
        metadata: the class of the metadata, a named tuple with `client_id` and `client_host`.
    """

    def __init__(self, metadata: type) -> None: ...

class HeartbeatFastPath(GroupFastPath):
    """The fast path of Heartbeat. It serves dynamic members in the current generation of a classic group.

    Args:
        api: the API, for responses that wait for a commit.
        shards: the group shards.
        authorizer: checks the permission to READ a group; None allows all requests.
        read: the tuple (`Operation.READ`, `ResourceType.GROUP`).
        denied: the response to a client that may not READ the group.
        request: the class of the request.
        machine: the class of a shard's state machine.
        group: the class of classic groups.
        member: the class of members of classic groups.
        dead: the state of a deleted group.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        authorizer: Any,
        read: tuple[Any, Any],
        denied: Any,
        *,
        request: type,
        machine: type,
        group: type,
        member: type,
        dead: object,
    ) -> None: ...
    def serve(self, context: Any, request: Any) -> Any:
        """Restarts the member's session timeout.

        Returns:
            The response; a `Pending` if the response waits for a commit; or None, without any change, if the generic
            path must serve the request.
        """

class ConsumerHeartbeatFastPath(EpochFastPath):
    """The fast path of ConsumerGroupHeartbeat.

    It serves a request that changes nothing, if the member has reached its target and no work of the group is due.

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
        group: the class of consumer groups.
        subscriptions: the class of a group's subscriptions.
        member: the class of members of consumer groups.
        metadata: the class of a member's metadata.
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
        subscriptions: type,
        member: type,
        metadata: type,
    ) -> None: ...
    def serve(self, context: Any, request: Any) -> Any:
        """Restarts the member's session timeout.

        Returns:
            The response; a `Pending` if the response waits for a commit; or None, without any change, if the generic
            path must serve the request.
        """
