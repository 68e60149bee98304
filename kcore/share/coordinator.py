"""The share coordinator of a node: its shards, and the topic whose partitions they are (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.late_shards import CoordinatorTopic, LateShards
from kcore.share.shard import TOPIC_NAME, ShareShard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shard import Shard
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicInfo


class ShareCoordinator(LateShards[ShareShard]):
    """The share shards of a node. The first use creates `__share_group_state`; before that, the node has no shards.

    Args:
        make: makes the shard of a partition of `__share_group_state`.
        pipeline: commits the decisions of the shards.

    Attributes:
        shards: the shards; None before `__share_group_state` exists.
    """

    __slots__ = ("_make", "_pipeline", "shards")

    TOPIC = TOPIC_NAME

    def __init__(self, make: Callable[[int], Shard[ShareShard]], pipeline: CommitPipeline) -> None:
        self._make = make
        self._pipeline = pipeline
        self.shards: Shards[ShareShard] | None = None


class ShareStateTopic(CoordinatorTopic):
    """The listener that loads the share shards once their topic exists, and deletes the state of deleted topics."""

    __slots__ = ()

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Deletes the state of the share partitions of a deleted topic.

        The topic `__share_group_state` itself counts as deleted only if its creation fails. In this case, the method
        unloads the shards.
        """
        super().on_topic_deleted(topic)
        for shard in self._coordinator.shards or ():
            shard.machine.on_topic_deleted()
