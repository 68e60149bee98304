"""The requests that members of every kind of group send: lookups of the coordinator and of topics."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.client.consumer_coordinator.interface import MemberSettings, Outgoing
from kcore.client.consumer_coordinator.topic_metadata import TopicMetadata
from kcore.errors import KafkaError
from kcore.protocol.error_codes import NEW_TOPIC_ERRORS, RETRIABLE
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class MemberRequests(ABC):
    """The queue of a member's requests, and the requests that every kind of member sends.

    Args:
        settings: the member's settings.
        now_ms: the present time, in monotonic ms.

    Attributes:
        settings: the member's settings.
        metadata: the topics that the member knows.
    """

    def __init__(self, settings: MemberSettings, now_ms: int) -> None:
        self.settings = settings
        self.metadata = TopicMetadata()
        self._outgoing: list[Outgoing] = []
        self._broker: Broker | None = None
        self._looking_up = False
        self._lookup_at_ms = now_ms
        self._lookup_attempts = 0
        self._metadata_at_ms = now_ms
        self._metadata_in_flight = False
        self._metadata_attempts = 0

    @property
    def coordinator(self) -> Broker | None:
        """The group's coordinator; None while it is looked up."""
        return self._broker

    def take_requests(self) -> list[Outgoing]:
        """Returns the requests to send now."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _send(
        self,
        request: Any,
        handle: Callable[[Any, int], bool | None],
        refuse: Callable[[Exception, int], None],
        *,
        anywhere: bool = False,
        timeout_ms: int | None = None,
        at_most: int | None = None,
        apart: bool = False,
    ) -> None:
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        broker = None if anywhere else self._broker
        self._outgoing.append(Outgoing(request, broker, limit_ms, handle, refuse, at_most, apart))

    def _backoff_ms(self, attempts: int) -> int:
        base, limit = self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms
        if base >= limit:
            return base
        return int(min(limit, base * 2 ** min(attempts, 16) * random.uniform(0.8, 1.2)))

    # ---- the coordinator

    def _look_up(self, now_ms: int) -> None:
        if self._broker is not None or self._looking_up or now_ms < self._lookup_at_ms:
            return
        self._looking_up = True
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.settings.group_id])
        self._send(request, self._lookup_succeeded, self._lookup_failed, anywhere=True)

    def _lookup_succeeded(self, response: FindCoordinatorResponse, now_ms: int) -> None:
        (row,) = response.coordinators
        if row.error_code:
            self._lookup_failed(KafkaError.of(row.error_code, row.error_message), now_ms)
            return
        self._looking_up = False
        self._lookup_attempts = 0
        self._broker = Broker(row.node_id, row.host, row.port)
        self._coordinator_found(now_ms)

    def _coordinator_found(self, now_ms: int) -> None:  # noqa: B027  # only classic members react
        """Handles a successful lookup of the coordinator."""

    def _lookup_failed(self, error: Exception, now_ms: int) -> None:
        self._looking_up = False
        self._lookup_at_ms = now_ms + self._backoff_ms(self._lookup_attempts)
        self._lookup_attempts += 1
        if isinstance(error, KafkaError) and error.code not in RETRIABLE:
            self._lookup_refused(error)

    @abstractmethod
    def _lookup_refused(self, error: KafkaError) -> None:
        """Handles an error of the coordinator lookup that no repetition resolves."""

    def _lose_coordinator(self, now_ms: int) -> None:
        if self._broker is not None:
            self._broker = None
            self._lookup_at_ms = now_ms

    # ---- metadata

    def _request_metadata(
        self, topics: Iterable[str] | None, ids: Iterable[bytes], then: Callable[[int], None]
    ) -> None:
        """Looks topics up by name or id (None: all topics), stores them, and calls `then`.

        If a topic does not exist or has no leader, the next lookup follows after the retry backoff, as in Java.
        """
        self._metadata_in_flight = True
        listed = None
        if topics is not None:
            listed = [MetadataRequestTopic(name=name) for name in sorted(topics)]
            listed += [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]

        def handle(response: MetadataResponse, now_ms: int) -> None:
            self._metadata_in_flight = False
            if any(topic.error_code in NEW_TOPIC_ERRORS for topic in response.topics):
                self._metadata_at_ms = now_ms + self._backoff_ms(self._metadata_attempts)
                self._metadata_attempts += 1
            else:
                self._metadata_attempts = 0
                self._metadata_at_ms = now_ms + self.settings.metadata_max_age_ms
            self.metadata.update(response, topics is None)
            then(now_ms)

        def refuse(error: Exception, now_ms: int) -> None:
            self._metadata_in_flight = False
            self._metadata_at_ms = now_ms + self._backoff_ms(self._metadata_attempts)
            self._metadata_attempts += 1

        self._send(MetadataRequest(topics=listed, allow_auto_topic_creation=False), handle, refuse, anywhere=True)
