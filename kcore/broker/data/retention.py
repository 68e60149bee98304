"""Periodic work of partitions: expiry of idle producers, snapshots of producers, retention by time and size, and
compaction.

The work runs in bounded slices between rounds of requests, partition by partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kcore.broker.compaction.schedule import Cleaner
from kcore.broker.configs.log_config import NO_LIMIT_MS
from kcore.broker.data.segments import Segments
from kcore.log.errors import LogError
from kcore.process_logging import log_name

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

PRODUCERS_A_SLICE = 1_000
PARTITIONS_A_SLICE = 50
OFFSETS_A_PARTITION = 100_000
"""Number of offsets in a log for which a search takes as long as all other work for the partition.

A search in the log's index takes up to 2 ms per million offsets.
"""
SNAPSHOT_CHECKS_A_SLICE = 2_000
"""Maximum number of partitions that a slice examines if none of them needs a snapshot."""
SNAPSHOT_INTERVAL_MS = 60_000
SNAPSHOT_MIN_RECORDS = 50_000
"""Threshold for producer snapshots, in offsets. If a restart would replay at least this number of offsets of a
partition, the node writes a snapshot of the partition's producers.
"""


class Periodic:
    """Sliced work that starts at a fixed interval, unless the previous run is still in progress.

    Args:
        wheel: fires the timer of the work.
        slices: runs the work.
        now: the clock, which the driver reads once for each round of requests.
        interval_ms: the time between two starts, or a function that returns it.
        work: returns a generator that does the work and yields after each slice.
    """

    __slots__ = ("_interval", "_now", "_running", "_slices", "_wheel", "_work", "runs")

    def __init__(
        self,
        wheel: TimerWheel,
        slices: Slices,
        now: Now,
        interval_ms: int | Callable[[], int],
        work: Callable[[], Iterator[None]],
    ) -> None:
        self._wheel = wheel
        self._slices = slices
        self._now = now
        self._interval: Callable[[], int] = (lambda: interval_ms) if isinstance(interval_ms, int) else interval_ms
        self._work = work
        self._running = False
        self.runs = 0

    def start(self) -> None:
        """Arms the timer for the first time."""
        self._arm()

    def __call__(self) -> None:
        """Starts a run when the timer fires, unless one is in progress, and arms the timer again."""
        if not self._running:
            self._slices.add(self._run(), log_name(self._work))
            self._running = True
        self._arm()

    def _arm(self) -> None:
        # The interval may be as long as 2**63 - 1; the timer wheel has no later deadline.
        self._wheel.add(min(self._now.now_ms + self._interval(), NO_LIMIT_MS), self)

    def _run(self) -> Iterator[None]:
        try:
            yield from self._work()
            self.runs += 1
        finally:
            self._running = False


class Housekeeping:
    """The periodic work of all partitions.

    Args:
        partitions: the node's partitions.
        wheel: fires the timers.
        slices: runs the work.
        now: the clock, which the driver reads once for each round of requests.
        config: has the intervals, and the time after which an idle producer expires.

    Attributes:
        cleaner: compacts partitions.
        compaction: runs the cleaner.
        expiry: expires idle producers.
        retention: deletes old records.
        snapshots: snapshots producers.
    """

    __slots__ = (
        "_config",
        "_now",
        "_partitions",
        "_segments",
        "cleaner",
        "compaction",
        "expiry",
        "retention",
        "snapshots",
    )

    def __init__(
        self,
        partitions: Partitions,
        wheel: TimerWheel,
        slices: Slices,
        now: Now,
        config: Config,
    ) -> None:
        self._partitions = partitions
        self._now = now
        self._config = config
        self._segments: dict[Partition, Segments] = {}
        self.expiry = Periodic(
            wheel, slices, now, config.producer_id_expiration_check_interval_ms, self.expire_producers
        )
        self.retention = Periodic(wheel, slices, now, config.log_retention_check_interval_ms, self.enforce_retention)
        self.cleaner = Cleaner(partitions, now, config)
        self.compaction = Periodic(wheel, slices, now, lambda: max(config.log_cleaner_backoff_ms, 1), self.cleaner.run)
        self.snapshots = Periodic(wheel, slices, now, SNAPSHOT_INTERVAL_MS, self.snapshot_producers)

    def start(self) -> None:
        """Arms the timers."""
        self.expiry.start()
        self.retention.start()
        self.compaction.start()
        self.snapshots.start()

    def expire_producers(self) -> Iterator[None]:
        """Removes producers that were idle for `producer.id.expiration.ms`, in all partitions."""
        until_pause = PARTITIONS_A_SLICE
        idle_ms = self._config.producer_id_expiration_ms
        for partition in self._partitions:
            if partition.recovering or partition.closed:
                continue
            yield from partition.producers.expire(self._now.wall_ms, idle_ms, PRODUCERS_A_SLICE)
            until_pause -= 1
            if not until_pause:
                until_pause = PARTITIONS_A_SLICE
                yield

    def snapshot_producers(self, min_records: int = SNAPSHOT_MIN_RECORDS) -> Iterator[None]:
        """Snapshots the producers of partitions with a long recovery, one partition per slice.

        Args:
            min_records: the method writes a snapshot of a partition if its recovery would replay at least this number
                of offsets.
        """
        until_pause = SNAPSHOT_CHECKS_A_SLICE
        for partition in self._partitions:
            until_pause -= 1
            try:
                if partition.snapshot_producers(min_records):
                    until_pause = 0
            except LogError as error:
                logger.warning(
                    "retention: cannot write the producer snapshot of partition %r: %s; a later check tries again; if "
                    "this repeats, check the disk",
                    partition,
                    error,
                )
            if not until_pause:
                until_pause = SNAPSHOT_CHECKS_A_SLICE
                yield

    def enforce_retention(self) -> Iterator[None]:
        """Applies retention.ms and retention.bytes to all partitions whose cleanup.policy contains delete."""
        until_pause = PARTITIONS_A_SLICE
        known, self._segments = self._segments, {}
        for partition in self._partitions:
            if partition in known:
                self._segments[partition] = known[partition]
            if partition.config.delete and not partition.recovering and not partition.closed:
                try:
                    yield from self._retain(partition)
                except LogError as error:
                    logger.warning(
                        "retention: cannot delete old records of partition %r: %s; the next check tries again; if "
                        "this repeats, check the disk",
                        partition,
                        error,
                    )
            until_pause -= 1 + (partition.high_watermark - partition.log_start_offset) // OFFSETS_A_PARTITION
            if until_pause <= 0:
                until_pause = PARTITIONS_A_SLICE
                yield

    def _retain(self, partition: Partition) -> Iterator[None]:
        config, log = partition.config, partition.log
        if log.log_start_offset >= partition.high_watermark:
            return
        oldest_ms = self._now.wall_ms - config.retention_ms if config.retention_ms >= 0 else None
        for _ in log.index_steps():
            yield
        if not self._exceeds(partition, oldest_ms):
            return
        segments = self._segments.setdefault(partition, Segments())
        yield from segments.update(partition)
        yield  # the headers of up to 1,000 batches were read since the last pause
        start_offset = segments.retained_from(oldest_ms, config.retention_bytes)
        if start_offset > log.log_start_offset and not partition.closed:
            many = partition.snapshot_size > PRODUCERS_A_SLICE
            partition.delete_before(start_offset)
            if many:
                yield

    @staticmethod
    def _exceeds(partition: Partition, oldest_ms: int | None) -> bool:
        """Returns True if the log exceeds a limit. Only then are the headers of its batches read.

        Args:
            partition: the partition to check.
            oldest_ms: records with an earlier timestamp expire; None: records do not expire by time.
        """
        config, log = partition.config, partition.log
        if 0 <= config.retention_bytes < log.size_bytes():
            return True
        if oldest_ms is None:
            return False
        kept = log.find_by_timestamp(oldest_ms)
        return kept is None or kept.base_offset > log.log_start_offset
