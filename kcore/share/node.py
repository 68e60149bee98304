"""The share coordinator of one node, wired to the node's log and timers (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kcore.runtime.loader import ShardLog
from kcore.runtime.shard import Shard
from kcore.share.coordinator import ShareCoordinator
from kcore.share.shard import TOPIC_NAME, ShareServices, ShareShard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicImage
    from kcore_ext.runtime.timer_wheel import TimerWheel


class StateLog(ShardLog, Protocol):
    """The log of a share shard, whose beginning can be deleted."""

    @property
    def high_watermark(self) -> int:
        """The committed end of the log."""
        ...

    def delete_before(self, offset: int) -> int:
        """Stages the deletion of the records below an offset."""
        ...


class ShardServices(NamedTuple):
    """The components of a node that all its shards use.

    Attributes:
        pipeline: commits decisions.
        wheel: the timers.
        slices: runs long work.
        now: the time of the round.
    """

    pipeline: CommitPipeline
    wheel: TimerWheel
    slices: Slices
    now: Now


def make_share_coordinator(
    config: Config,
    topics: TopicImage,
    log_of: Callable[[str, int], StateLog | None],
    enabled: Callable[[], bool],
    services: ShardServices,
) -> ShareCoordinator:
    """Makes the share coordinator of a node; its shards are loaded once `__share_group_state` exists.

    Args:
        config: the node's settings.
        topics: the cluster's topics.
        log_of: returns the log of a partition: topic, partition.
        enabled: returns True if share groups are enabled.
        services: the components that all shards of the node use.
    """

    def prune(index: int, before_offset: int) -> None:
        log = log_of(TOPIC_NAME, index)
        if log is not None:
            log.delete_before(min(before_offset, log.high_watermark))

    share = ShareServices(config, topics, enabled, prune)

    def make(index: int) -> Shard[ShareShard]:
        log = log_of(TOPIC_NAME, index)
        assert log is not None, f"{TOPIC_NAME} was made with partition {index}"
        return Shard(
            TOPIC_NAME,
            index,
            log,
            lambda context: ShareShard(context, share),
            pipeline=services.pipeline,
            wheel=services.wheel,
            slices=services.slices,
            now=services.now,
        )

    return ShareCoordinator(make, services.pipeline)
