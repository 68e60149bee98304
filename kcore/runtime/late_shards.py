"""Shards of an internal topic that the first use creates."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import StateMachine
from kcore.runtime.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shard import Shard

M = TypeVar("M", bound=StateMachine)


class LateShards(Generic[M]):
    """The part of a coordinator that starts and stops its shards with their topic.

    Attributes:
        TOPIC: the topic's name.
        shards: the shards; None before there is a topic for them.
    """

    __slots__ = ()

    TOPIC: ClassVar[str]

    shards: Shards[M] | None
    _make: Callable[[int], Shard[M]]
    _pipeline: CommitPipeline

    def start(self, partitions: int, leader_epoch: int | None) -> None:
        """Loads the shards of the topic, which now exists.

        Args:
            partitions: the topic's number of partitions.
            leader_epoch: the epoch in which this node leads all of them; None: it leads none yet.
        """
        # The slot is the subclass's: a class with slots cannot have two bases with slots.
        self.shards = Shards(self.TOPIC, partitions, self._make, self._pipeline)  # type: ignore[misc]
        if leader_epoch is not None:
            for index in range(partitions):
                self.shards.load(index, leader_epoch)

    def stop(self) -> None:
        """Unloads all shards: the commit that created the topic failed."""
        shards, self.shards = self.shards, None  # type: ignore[misc]
        for shard in shards or ():
            shard.unload()

    def of(self, key: str) -> Shard[M]:
        """Returns the shard of a key: a transactional id or a share key.

        Raises:
            KafkaError: NOT_COORDINATOR if this node does not own it.
        """
        if self.shards is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self.shards.of(key)
