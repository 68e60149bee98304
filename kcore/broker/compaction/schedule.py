"""The schedule of compaction: decides from the sizes of a partition's new and compacted parts if the partition is due.

Topics use Kafka's settings (min.cleanable.dirty.ratio, min.compaction.lag.ms and max.compaction.lag.ms). Partitions of
coordinators use the settings kcore.snapshot.*, which limit the size of the log in proportion to the live state. A
restart reads the whole log of these partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from kcore.broker.compaction.cleaner import CompactionPass, CompactionRules
from kcore.broker.data.segments import Segments
from kcore.log.errors import LogError
from kcore_ext.batch import CorruptBatchError
from kcore_ext.broker.compaction_map import sizes

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.log.interface import PartitionLog

logger = logging.getLogger(__name__)

BATCHES_A_SLICE = 256
PARTITIONS_A_SLICE = 20


class LogSizes:
    """Sizes of the compacted and the new part of a partition's log.

    The first `update` reads all batches. Later updates use the log's count of appended bytes.

    Attributes:
        clean_bytes: size of the compacted part, which ends at the log's offset `cleaned_to`.
        dirty_bytes: size of the new part, from `cleaned_to` on.
        first_dirty_ms: largest timestamp of the first batch of the new part; -1: no batch, or no timestamp.
        next_horizon_ms: time from which the first tombstone may be removed; -1: no known tombstone.
        segments: the segments that the log would have in Kafka; None until the first time that the partition was due
            for compaction.
    """

    __slots__ = (
        "_appended_bytes",
        "_position",
        "_start",
        "clean_bytes",
        "dirty_bytes",
        "first_dirty_ms",
        "next_horizon_ms",
        "segments",
    )

    def __init__(self) -> None:
        self._start = self._position = -1
        self._appended_bytes = -1  # the log's count of appended bytes at the last update; -1: not counted yet
        self.clean_bytes = self.dirty_bytes = 0
        self.first_dirty_ms = self.next_horizon_ms = -1
        self.segments: Segments | None = None

    def update(self, partition: Partition) -> Iterator[None]:
        """Counts the bytes appended since the last update. If the log's start has advanced, counts the whole log
        again.
        """
        log = partition.log
        if log.log_start_offset != self._start:
            self._position = self._start = log.log_start_offset
            self._appended_bytes = -1
            self.clean_bytes = self.dirty_bytes = 0
            self.first_dirty_ms = -1
        if self._appended_bytes < 0:
            yield from self._walk(log)
            return
        new_bytes = log.appended_bytes - self._appended_bytes
        if new_bytes:
            if not self.dirty_bytes:
                first = log.summaries(self._position, 1)
                self.first_dirty_ms = first[0].max_timestamp_ms if first else -1
            self.dirty_bytes += new_bytes
            self._appended_bytes += new_bytes
            self._position = log.high_watermark

    def _walk(self, log: PartitionLog) -> Iterator[None]:
        until_pause = BATCHES_A_SLICE
        while self._position < log.high_watermark:
            run = next(log.runs(self._position, check_crc=False), None)
            if run is None:
                break
            found = sizes(run, log.cleaned_to)
            if found.dirty_bytes and not self.dirty_bytes:
                self.first_dirty_ms = found.first_dirty_ms
            self.clean_bytes += found.clean_bytes
            self.dirty_bytes += found.dirty_bytes
            self._position = found.next_offset
            until_pause -= len(run)
            if until_pause <= 0:
                until_pause = BATCHES_A_SLICE
                yield
                if log.log_start_offset != self._start:
                    return  # retention removed a part of the counted batches
        self._appended_bytes = log.appended_bytes

    def compacted(self, work: CompactionPass) -> None:
        """Takes over the results of a completed pass. The next `update` counts the batches after its end."""
        self._position = work.end_offset
        self._appended_bytes = -1
        self.clean_bytes, self.dirty_bytes = work.size_bytes, 0
        self.first_dirty_ms = -1
        self.next_horizon_ms = work.next_horizon_ms


class Cleaner:
    """The compaction of all partitions whose topic's cleanup.policy contains compact, one after the other.

    Args:
        partitions: the node's partitions.
        now: the clock, which the driver reads once for each round of requests.
        config: the node's settings.

    Attributes:
        passes: number of completed passes.
        failures: number of passes that ended with an error.
        last_run_ms: monotonic time in ms at which the last check of all partitions ended. Before the end of the first
            check, it is the time at which the node started.
    """

    __slots__ = ("_config", "_now", "_partitions", "_sizes", "failures", "last_run_ms", "passes")

    def __init__(self, partitions: Partitions, now: Now, config: Config) -> None:
        self._partitions = partitions
        self._now = now
        self._config = config
        self._sizes: dict[Partition, LogSizes] = {}
        self.passes = 0
        self.failures = 0
        self.last_run_ms = now.now_ms

    def run(self) -> Iterator[None]:
        """Checks every partition once, in slices, and compacts the partitions that are due."""
        previous, self._sizes = self._sizes, {}
        until_pause = PARTITIONS_A_SLICE
        for partition in self._partitions:
            if not partition.config.compact or partition.recovering or partition.closed:
                continue
            sizes = self._sizes[partition] = previous.get(partition) or LogSizes()
            try:
                yield from sizes.update(partition)
                if self._is_due(partition, sizes, sizes.dirty_bytes) and (
                    yield from self._is_compactable(partition, sizes)
                ):
                    yield from self.compact(partition, sizes)
                    yield
            except (LogError, CorruptBatchError) as error:
                self.failures += 1
                logger.warning(
                    "compaction: cannot compact partition %r: %s; a later check tries again; if this repeats, check "
                    "the log with `kcore log verify`",
                    partition,
                    error,
                )
            until_pause -= 1
            if not until_pause:
                until_pause = PARTITIONS_A_SLICE
                yield
        self.last_run_ms = self._now.now_ms

    def max_dirty_ratio(self) -> float:
        """Returns the largest dirty ratio (new bytes / all bytes) of all partitions, as of the last check."""
        sizes = self._sizes.values()
        return max((each.dirty_bytes / (each.dirty_bytes + each.clean_bytes or 1) for each in sizes), default=0.0)

    def compact(self, partition: Partition, sizes: LogSizes | None = None) -> Iterator[None]:
        """Compacts one partition now.

        Args:
            partition: the partition to compact.
            sizes: the sizes of the partition, updated after the pass; None: the sizes are not tracked.

        Raises:
            LogError: the partition's log is damaged.
            CorruptBatchError: a batch of the partition is damaged.
        """
        config = partition.config
        limit = None if sizes is None or sizes.segments is None else sizes.segments.active_offset
        rules = CompactionRules(
            self._now.wall_ms, config.delete_retention_ms, config.min_compaction_lag_ms, limit_offset=limit
        )
        work = CompactionPass(partition, rules)
        yield from work.run()
        if work.done:
            self.passes += 1
            if sizes is not None:
                sizes.compacted(work)
                yield from sizes.update(partition)

    def _is_compactable(self, partition: Partition, sizes: LogSizes) -> Generator[None, None, bool]:
        """Tests if a partition is due for compaction when the bytes of its active segment do not count. Kafka does not
        compact the active segment.

        For a coordinator's partition, the result is always True. Such a partition is compacted up to its end, because a
        restart reads the whole log.
        """
        if partition.internal:
            return True
        if sizes.segments is None:
            sizes.segments = Segments()
        yield from sizes.segments.update(partition)
        return self._is_due(partition, sizes, sizes.segments.closed_bytes(partition.log.cleaned_to))

    def _is_due(self, partition: Partition, sizes: LogSizes, dirty: int) -> bool:
        config, wall_ms = partition.config, self._now.wall_ms
        if 0 <= sizes.next_horizon_ms <= wall_ms:
            return True
        clean = sizes.clean_bytes
        if not dirty:
            return False
        if partition.internal:
            own = self._config
            return dirty >= max(own.kcore_snapshot_min_bytes, own.kcore_snapshot_live_ratio * clean)
        overdue = 0 <= sizes.first_dirty_ms <= wall_ms - config.max_compaction_lag_ms
        return overdue or dirty >= config.min_cleanable_ratio * (dirty + clean)
