"""Planned moves of coordinators: the next leader reads the log while the current leader still serves.

The next leader begins when it replays the plan. The current leader gives up a partition with a long log a little later,
so that the next leader has time to read the log. The current leader does not wait for a message from the next leader.
If the next leader is slow or not running, only its load takes longer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kcore.broker.data.followed_log import FollowedLog
from kcore.log.errors import LogError
from kcore.runtime.loader import SLICE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcore.broker.data.partition import Partition
    from kcore.log.interface import PartitionKey
    from kcore.log.shared_engine import SharedLogEngine
    from kcore.runtime.shard import Shard
    from kcore.runtime.shards import Shards

logger = logging.getLogger(__name__)

RECORDS_PER_MS: Final = 200
"""Estimated number of records that a next leader reads in a millisecond. The estimate is low, because a remote store
can be slow.
"""
MAX_WAIT_MS: Final = 1_000
"""The longest time for which a leader delays giving up a partition, so that a node can stop in a short time."""


def wait_ms(shard: Shard[Any]) -> int:
    """Returns the time in ms for which the leader waits while the next leader reads the log; 0 for a short log."""
    report = shard.report
    records = report.records + shard.log.end_offset - report.end_offset
    return 0 if records <= SLICE_RECORDS else min(records // RECORDS_PER_MS, MAX_WAIT_MS)


class ReadAhead:
    """The partitions that this node will lead, and whose logs it reads.

    Args:
        log: the node's log engine.
        shards_of: returns the coordinators of an internal topic, or None.
    """

    __slots__ = ("_followed", "_log", "_shards_of")

    def __init__(self, log: SharedLogEngine, shards_of: Callable[[str], Shards[Any] | None]) -> None:
        self._log = log
        self._shards_of = shards_of
        self._followed: dict[PartitionKey, tuple[str, FollowedLog]] = {}

    def __iter__(self) -> Iterator[PartitionKey]:
        """Yields the partitions whose logs this node is reading."""
        return iter(self._followed)

    def begin(self, topic: str, key: PartitionKey) -> None:
        """Begins to read the log of a coordinator's partition, unless it is being read."""
        shards = self._shards_of(topic)
        if shards is None or key in self._followed:
            return
        try:
            log = self._log.follow(key)
        except LogError as error:
            logger.debug(
                "cluster: cannot read partition %s-%d ahead of its move to this node: %s", topic, key.partition, error
            )
            return
        if log is not None:
            followed = FollowedLog(log)
            self._followed[key] = topic, followed
            shards.read_ahead(key.partition, followed)

    def discard(self, key: PartitionKey) -> None:
        """Ends the reading of a partition that this node will not lead after all."""
        if key in self._followed:
            self._stop(key)
            self._log.release(key)

    def _stop(self, key: PartitionKey) -> None:
        topic, _ = self._followed[key]
        shards = self._shards_of(topic)
        if shards is not None:
            shards.stop_reading_ahead(key.partition)
        del self._followed[key]

    def hand_to(self, key: PartitionKey, partition: Partition) -> None:
        """Passes the replayed part of a log to the load of its partition, which this node leads now."""
        found = self._followed.get(key)
        if found is None:
            return
        if found[1].hand_to(partition):
            del self._followed[key]
        else:
            self._stop(key)
