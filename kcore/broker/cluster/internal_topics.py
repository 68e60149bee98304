"""Creation of the coordinators' topics from any node of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.broker.metadata.internal_topics import InternalTopics

if TYPE_CHECKING:
    from kcore.broker.cluster.forwarding import Forwarder
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.clock import Now
    from kcore.runtime.shard import Shard

RETRY_MS: Final = 1_000
"""The pause before a node requests the creation of an internal topic again."""


class SharedInternalTopics(InternalTopics):
    """The creator of internal topics on any node of a cluster.

    The controller creates them itself; other nodes request them from the controller.

    Args:
        shard: the metadata shard.
        creation: checks and plans new topics.
        forwarder: sends requests to the controller.
        now: the clock, which the driver reads once for each round of requests.
    """

    __slots__ = ("_forwarder", "_now", "_retry_at_ms")

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        creation: TopicCreation,
        forwarder: Forwarder,
        now: Now,
    ) -> None:
        super().__init__(shard, creation)
        self._forwarder = forwarder
        self._now = now
        self._retry_at_ms: dict[str, int] = {}

    def ensure(self, name: str) -> bool:
        """Creates an internal topic unless it exists, or requests it from the controller.

        Returns True if the topic exists now.
        """
        machine = self._shard.machine
        if machine.leads() or machine.image.by_name(name) is not None:
            return super().ensure(name)
        now_ms = self._now.now_ms
        if now_ms >= self._retry_at_ms.get(name, now_ms):
            self._retry_at_ms[name] = now_ms + RETRY_MS
            self._forwarder.request_topic(name)
        return False
