"""The repeated lookup of subscribed topics that do not exist, and the warning about them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kcore.client.missing_topics import SubscriptionCheck
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.node._async.backend import monotonic
from kcore.node._async.calls import AsyncCalls

logger = logging.getLogger(__name__)


class AsyncSubscription:
    """The topics of a subscription, which are looked up until all of them exist.

    Args:
        calls: the node's requests.
        topics: the names of the topics.
        subscriber: the text that names the member and its group in a warning.
    """

    def __init__(self, calls: AsyncCalls, topics: Iterable[str], subscriber: str) -> None:
        self._calls = calls
        self._check = SubscriptionCheck(topics, monotonic())
        self._subscriber = subscriber

    @property
    def wait_s(self) -> float | None:
        """The time until the next lookup, in seconds; None: no lookup is needed."""
        due_s = self._check.due_s
        return None if due_s is None else max(0.0, due_s - monotonic())

    def begin(self) -> bool:
        """Returns True if a lookup is due; the caller then calls `look_up`."""
        due = self.wait_s == 0.0
        if due:
            self._check.begin()
        return due

    async def look_up(self) -> None:
        """Looks the topics up, and logs a warning about topics that do not exist."""
        try:
            response = await self._calls.transport.metadata(self._check.topics)
        except (KafkaError, ConnectionClosedError, TimeoutError):
            self._check.failed(monotonic())  # the heartbeats fail for the same reason and report it
            return
        missing = self._check.received(response, monotonic())
        if missing:
            logger.warning(
                "client: %s subscribes to %s, which the brokers do not know; check the spelling, or create %s",
                self._subscriber,
                ", ".join(repr(topic) for topic in missing),
                "it" if len(missing) == 1 else "them",
            )
