"""The components of a node that all its shards use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kcore.runtime.shard import MAX_BATCH_BYTES, Shard

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.loader import ShardLog
    from kcore.runtime.machine import ShardContext, StateMachine
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import TimerWheel


M = TypeVar("M", bound="StateMachine")


class ShardServices(NamedTuple):
    """The components of a node that all its shards use.

    Attributes:
        pipeline: commits decisions.
        wheel: the node's timers.
        slices: runs long work.
        now: the clock, which is read once per round.
    """

    pipeline: CommitPipeline
    wheel: TimerWheel
    slices: Slices
    now: Now

    def make_shard(
        self,
        topic: str,
        index: int,
        log_of: Callable[[str, int], ShardLog | None],
        factory: Callable[[ShardContext], M],
        *,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        codec: int = 0,
    ) -> Shard[M]:
        """Makes the shard of a partition of an internal topic, which must exist. The shard is not loaded yet.

        Args:
            topic: the name of the internal topic.
            index: the number of the partition.
            log_of: returns the log of a partition; called with topic and partition number.
            factory: makes the shard's state machine.
            max_batch_bytes: the maximum size of a record batch, in bytes.
            codec: the compression of record batches, by its number in the attributes of a batch.
        """
        log = log_of(topic, index)
        assert log is not None, f"{topic} was created before, with partition {index}"
        return Shard(topic, index, log, factory, self, max_batch_bytes=max_batch_bytes, codec=codec)
