"""The internal topics of Kafka Streams applications: repartition and changelog topics (KIP-1071)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from kcore.broker.metadata.names import CLUSTER_METADATA, is_internal, name_fault
from kcore.broker.metadata.topic_creation import DEFAULT, MAX_PARTITIONS_PER_REQUEST
from kcore.errors import KafkaError
from kcore.process_logging import fields
from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.clock import Now
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shard import Shard

logger = logging.getLogger(__name__)

MAX_FAILURES: Final = 1_000
"""Maximum number of topics whose failed creation is remembered. A further failure replaces the oldest."""


class RequestedTopic(Protocol):
    """A topic to create.

    Attributes:
        name: the topic's name.
        partitions: the topic's partition count.
        replication_factor: the number of replicas; 0 for the node's default.
        settings: the topic's own settings.
    """

    @property
    def name(self) -> str:
        """The topic's name."""
        ...

    @property
    def partitions(self) -> int:
        """The topic's partition count."""
        ...

    @property
    def replication_factor(self) -> int:
        """The topic's replicas; 0 for the node's default."""
        ...

    @property
    def settings(self) -> dict[str, str]:
        """The topic's own settings."""
        ...


class ApplicationTopics:
    """The creator of the internal topics of Kafka Streams applications. It creates topics in slices, between rounds of
    requests, and remembers failures for some time.

    Args:
        shard: the metadata shard.
        creation: checks and plans new topics.
        now: the clock, which the driver reads once for each round of requests.
    """

    __slots__ = ("_creation", "_failures", "_now", "_queued", "_shard")

    def __init__(self, shard: Shard[MetadataMachine], creation: TopicCreation, now: Now) -> None:
        self._shard = shard
        self._creation = creation
        self._now = now
        self._queued: dict[str, None] = {}  # topics whose creation has been started
        self._failures: dict[str, tuple[str, int]] = {}  # name -> (reason, monotonic time until which it is reported)

    def name_fault(self, name: str) -> str | None:
        """Describes the fault of a topic's name in a topology; None if an application may use it."""
        if is_internal(name) or name == CLUSTER_METADATA:
            return f"{name} is an internal topic of the cluster"
        return name_fault(name)

    def create(self, context: RequestContext, topics: Iterable[RequestedTopic], remember_ms: int) -> None:
        """Starts creating topics, unless their creation has been started already.

        If the topics have too many partitions together, none of them is created. Kafka creates them with one request,
        which has the same limit.

        Args:
            context: the client whose request needs the topics, and which is allowed to create them.
            topics: the topics to create.
            remember_ms: the time for which a failure is reported.
        """
        waiting = [topic for topic in topics if topic.name not in self._queued]
        if not waiting:
            return
        partitions = sum(topic.partitions for topic in waiting)
        if partitions > MAX_PARTITIONS_PER_REQUEST:
            reason = (
                f"the topics need {partitions} new partitions; the maximum at a time is {MAX_PARTITIONS_PER_REQUEST}"
            )
            for topic in waiting[:MAX_FAILURES]:
                self._note_failure(topic.name, reason, remember_ms)
            _log_failures({topic.name: reason for topic in waiting})
            return
        self._queued.update((topic.name, None) for topic in waiting)
        self._start(context, waiting, remember_ms)

    def _start(self, context: RequestContext, topics: list[RequestedTopic], remember_ms: int) -> None:
        """Starts creating queued topics."""
        self._shard.in_slices(self._work(topics, remember_ms))

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the causes of recent failures to create topics: topic name -> cause."""
        failed = {}
        for name in names:
            failure = self._failures.get(name)
            if failure is None:
                continue
            reason, until_ms = failure
            if self._now.now_ms < until_ms:
                failed[name] = reason
            else:
                del self._failures[name]
        return failed

    def _note_failure(self, name: str, reason: str, remember_ms: int) -> None:
        self._failures.pop(name, None)
        while len(self._failures) >= MAX_FAILURES:
            del self._failures[next(iter(self._failures))]
        self._failures[name] = (reason, self._now.now_ms + remember_ms)

    def _work(self, topics: list[RequestedTopic], remember_ms: int) -> Iterator[Outcome | None]:
        """Creates one topic in each slice."""
        failed: dict[str, str] = {}
        try:
            for topic in topics:
                try:
                    outcome = self._created(topic)
                except KafkaError as error:
                    outcome = None
                    failed[topic.name] = error.message or error.code.name
                yield outcome
        finally:
            self._finish(topics, failed, remember_ms)

    def _finish(self, topics: list[RequestedTopic], failed: dict[str, str], remember_ms: int) -> None:
        """Ends the creation of queued topics, and stores the reason for each topic that was not created."""
        for topic in topics:
            self._queued.pop(topic.name, None)
            self._failures.pop(topic.name, None)
        for name, reason in failed.items():
            self._note_failure(name, reason, remember_ms)
        if failed:
            _log_failures(failed)

    def _created(self, topic: RequestedTopic) -> Outcome | None:
        """Returns the records of a new topic; None if it exists.

        Raises:
            KafkaError: the topic cannot be created.
        """
        machine = self._shard.machine
        if machine.image.by_name(topic.name) is not None:
            return None
        new = self._creation.plan(machine.image, creatable(topic))
        return machine.outcome(new.records())


def creatable(topic: RequestedTopic) -> CreatableTopic:
    """Converts a topic to an entry of a CreateTopics request."""
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.settings.items()],
    )


def _log_failures(reasons: dict[str, str]) -> None:
    """Logs one line about all topics of a request that were not created: a topology can name thousands."""
    name, reason = next(iter(reasons.items()))
    logger.warning(
        "streams groups: cannot create %d internal topics of an application, for example %s: %s; correct the cause; a "
        "later heartbeat of the application tries again",
        len(reasons),
        name,
        reason,
        extra=fields(topic=name),
    )
