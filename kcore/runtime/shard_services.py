"""The components of a node that all its shards use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import TimerWheel


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
