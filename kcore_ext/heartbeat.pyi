from typing import Any

class HeartbeatCore:
    """What `HeartbeatApi` does for a dynamic member of a classic group's present generation, and for every other request
    as its own `handle_any` and `decide_any` say.

    Args:
        shards: the group shards.
        authorizer: who may do what; with one, the checks in front are the plain ones.
        request: the class of the request.
        machine: the class of a shard's state machine.
        group: the class of classic groups.
        member: the class of its members.
        dead: the state of a group that is gone.

    Attributes:
        quick: how many requests were answered here.
    """

    _shards: Any
    _authorizer: Any

    def __init__(
        self, shards: Any, authorizer: Any, *, request: type, machine: type, group: type, member: type, dead: object
    ) -> None: ...
    @property
    def quick(self) -> int: ...
    def handle(self, context: Any, request: Any) -> Any:
        """Serves one request: see `kcore.runtime.Api.handle`."""

    def decide(self, machine: Any, context: Any, request: Any) -> Any:
        """Decides it within its shard: see `kcore.runtime.Api.decide`."""
