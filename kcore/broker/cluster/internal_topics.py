"""Creation of the coordinators' topics from any node of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kcore.broker.metadata.internal_topics import InternalTopics
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.runtime.api import RequestContext
from kcore.share.persister import share_key

if TYPE_CHECKING:
    from kcore.broker.cluster.forwarding import Forwarder
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.clock import Now
    from kcore.runtime.shard import Shard

KEY_TYPES: Final = {CONSUMER_OFFSETS: 0, TRANSACTION_STATE: 1, SHARE_GROUP_STATE: 2}
"""The key type of FindCoordinator for each topic: the controller's FindCoordinator creates it."""
AGAIN_MS: Final = 1_000
VERSION: Final = 6
"""The first version of FindCoordinator with share keys (KIP-932)."""


class SharedInternalTopics(InternalTopics):
    """Creates internal topics on the controller, and asks the controller for them on other nodes.

    Args:
        shard: the metadata shard.
        creation: checks and plans new topics.
        forwarder: returns the way to the controller.
        now: the time of the round.
    """

    __slots__ = ("_asked_ms", "_forwarder", "_now")

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        creation: TopicCreation,
        forwarder: Callable[[], Forwarder],
        now: Now,
    ) -> None:
        super().__init__(shard, creation)
        self._forwarder = forwarder
        self._now = now
        self._asked_ms: dict[str, int] = {}

    def ensure(self, name: str) -> bool:
        """Creates an internal topic unless it exists, or has the controller do it. Returns True if it exists now."""
        machine = self._shard.machine
        if machine.leads() or machine.image.by_name(name) is not None:
            return super().ensure(name)
        now_ms = self._now.now_ms
        if now_ms >= self._asked_ms.get(name, now_ms):
            self._asked_ms[name] = now_ms + AGAIN_MS
            key = share_key("kcore", bytes(16), 0) if name == SHARE_GROUP_STATE else "kcore"
            request = FindCoordinatorRequest(key_type=KEY_TYPES[name], coordinator_keys=[key])
            self._forwarder().notify(RequestContext(VERSION, "kcore"), request)
        return False
