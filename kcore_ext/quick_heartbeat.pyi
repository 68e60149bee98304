from typing import Any

from kcore_ext.message_shape import Shape

class QuickHeartbeat:
    """A heartbeat that only begins a session anew, answered without a way through Python; every other request goes the
    way that `handle_any` and `decide_any` of the API say. The base of what `HeartbeatApi` and
    `ConsumerGroupHeartbeatApi` do.

    Args:
        shards: the group shards.
        authorizer: who may do what; with one, the checks in front are the plain ones.
        request: the request's shape, whose first field is the group's id.

    Attributes:
        quick: how many requests were answered here.
    """

    _shards: Any
    _authorizer: Any

    def __init__(self, shards: Any, authorizer: Any, request: Shape) -> None: ...
    @property
    def quick(self) -> int: ...
    def handle(self, context: Any, request: Any) -> Any:
        """Serves one request: see `kcore.runtime.Api.handle`."""

    def decide(self, machine: Any, context: Any, request: Any) -> Any:
        """Decides it within its shard: see `kcore.runtime.Api.decide`."""
