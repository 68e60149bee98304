"""The shards of an internal topic that is created at its first use."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.log.errors import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import StateMachine
from kcore.runtime.shards import Shards
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shard import Shard
    from kcore.runtime.topics import TopicInfo

M = TypeVar("M", bound=StateMachine)


class LateShards(Generic[M]):
    """The base of a coordinator whose shards are loaded when their topic is created.

    It defines no slots, because a subclass may also have a compiled base. The subclass defines `shards`, `_make` and
    `_pipeline`.

    Attributes:
        TOPIC: the topic's name.
    """

    __slots__ = ()

    TOPIC: ClassVar[str]

    _make: Callable[[int], Shard[M]]
    _pipeline: CommitPipeline

    @property
    @abstractmethod
    def shards(self) -> Shards[M] | None:
        """The shards; None before their topic exists."""

    @shards.setter
    @abstractmethod
    def shards(self, shards: Shards[M] | None) -> None: ...

    def start(self, partitions: int, leader_epoch: int | None) -> None:
        """Loads the shards of the topic, which now exists.

        Args:
            partitions: the topic's number of partitions.
            leader_epoch: the epoch in which this node leads all partitions of the topic; None: this node leads no
                partition of the topic yet.
        """
        self.shards = shards = Shards(self.TOPIC, partitions, self._make, self._pipeline)
        if leader_epoch is not None:
            for index in range(partitions):
                shards.load(index, leader_epoch)

    def stop(self) -> None:
        """Unloads all shards, because the commit that created the topic failed.

        Without the topic, requests that the shards have decided meanwhile cannot become durable, so their round fails.
        """
        shards, self.shards = self.shards, None
        if shards is None:
            return
        if any(shard.dirty or shard.committing for shard in shards):
            self._pipeline.abort_round(LogError(f"{self.TOPIC} was not created"))
            self._pipeline.commit()
        for shard in shards:
            shard.unload()

    def of(self, key: str) -> Shard[M]:
        """Returns the shard of a key: a transactional id or a share key.

        Raises:
            KafkaError: NOT_COORDINATOR if this node does not own the shard.
        """
        shards = self.shards
        if shards is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shards.of(key)


class CoordinatorTopic(MetadataListener):
    """The listener that loads a coordinator's shards when their topic exists: at the start of the node, or after the
    first use creates the topic.

    Args:
        coordinator: the coordinator of this node.
        leader_epoch: the leader epoch of the shards on this node; None if other nodes may lead them.
    """

    __slots__ = ("_coordinator", "_leader_epoch")

    def __init__(self, coordinator: LateShards[Any], leader_epoch: int | None) -> None:
        self._coordinator = coordinator
        self._leader_epoch = leader_epoch

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Loads a shard for each partition of the coordinator's topic."""
        if topic.name == self._coordinator.TOPIC:
            self._coordinator.start(topic.partitions, self._leader_epoch)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Unloads the shards if the creation of their topic failed."""
        if topic.name == self._coordinator.TOPIC:
            self._coordinator.stop()
