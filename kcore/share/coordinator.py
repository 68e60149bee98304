"""The share coordinator of a node: its shards, and the topic whose partitions they are (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.late_shards import LateShards
from kcore.runtime.topics import MetadataListener
from kcore.share.shard import TOPIC_NAME, ShareShard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shard import Shard
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicInfo


class ShareCoordinator(LateShards[ShareShard]):
    """All share shards of a node. There are none until the first use creates `__share_group_state`.

    Args:
        make: makes the shard of a partition of `__share_group_state`.
        pipeline: commits the decisions of the shards.

    Attributes:
        shards: the shards; None before there is a topic for them.
    """

    __slots__ = ("_make", "_pipeline", "shards")

    TOPIC = TOPIC_NAME

    def __init__(self, make: Callable[[int], Shard[ShareShard]], pipeline: CommitPipeline) -> None:
        self._make = make
        self._pipeline = pipeline
        self.shards: Shards[ShareShard] | None = None


class ShareStateTopic(MetadataListener):
    """Loads the share shards once their topic exists, and deletes the state of deleted topics.

    Args:
        coordinator: the node's share coordinator.
        leader_epoch: the leader epoch of the shards on this node; None if others may lead them.
    """

    __slots__ = ("_coordinator", "_leader_epoch")

    def __init__(self, coordinator: ShareCoordinator, leader_epoch: int | None) -> None:
        self._coordinator = coordinator
        self._leader_epoch = leader_epoch

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Loads a shard for each partition of `__share_group_state`."""
        if topic.name == TOPIC_NAME:
            self._coordinator.start(topic.partitions, self._leader_epoch)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Deletes the state of the topic's share partitions. Unloads the shards if their own topic was not created."""
        if topic.name == TOPIC_NAME:
            self._coordinator.stop()
            return
        for shard in self._coordinator.shards or ():
            shard.machine.on_topic_deleted()
