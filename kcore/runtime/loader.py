"""Recovery: replays a shard's log into a new state machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.batch_header import last_offset
from kcore.process_logging import limited_logger, log_failure, next_step
from kcore.protocol.compression import decompress
from kcore_ext.batch import CorruptBatchError, iter_entries, parse_control, parse_header
from kcore_ext.batch.run import simple_run

if TYPE_CHECKING:
    from kcore_ext.batch import BatchBuilder
    from kcore_ext.batch.run import Run

logger = limited_logger(__name__)

SLICE_RECORDS = 5_000  # records that are replayed before waiting requests are served


class ReadableLog(Protocol):
    """A log that can be replayed."""

    def runs(self, start: int | None = None) -> Iterator[list[tuple[int, bytes]]]:
        """Yields every committed batch with its base offset, in order. Each list has the batches of one read.

        Args:
            start: the first offset; None: the start of the log.
        """
        ...


class ShardLog(ReadableLog, Protocol):
    """The log of one shard: a partition log, or a partition that wraps one."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get, after all staged records."""
        ...

    @property
    def high_watermark(self) -> int:
        """The offset after the last durable record."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node owns the partition; an append with an older epoch is refused."""
        ...

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Stages an encoded batch for the next commit; returns its base offset."""
        ...

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """Stages the batch of a builder for the next commit; returns its base offset."""
        ...


class LoadReport:
    """The statistics of a load.

    Attributes:
        records: the number of replayed records.
        batches: the number of their batches.
        size_bytes: the size of these batches.
        unknown: the number of skipped records of unknown types.
        elapsed_ms: the time from the first slice to the last.
        end_offset: the offset after the last replayed batch.
        read_ahead: the number of records that were replayed before the load began, while another node led the log.
    """

    __slots__ = ("batches", "elapsed_ms", "end_offset", "read_ahead", "records", "size_bytes", "unknown")

    def __init__(self) -> None:
        self.records = 0
        self.batches = 0
        self.size_bytes = 0
        self.unknown = 0
        self.elapsed_ms = 0
        self.end_offset = 0
        self.read_ahead = 0


class Replay:
    """The replay of a log into a state machine, in slices of about `SLICE_RECORDS` records.

    There is no separate snapshot: the log is compacted in place, so its length depends on the live state, not on the
    history.

    Records of unknown types are counted and skipped, as in Kafka. If a record cannot be decoded or
    replayed, the load fails with the exception.

    Args:
        machine: an empty state machine.

    Attributes:
        machine: the state machine.
        report: the statistics. The next run begins at its `end_offset`.
        paused: True between two slices and at the end. After an error it is False, and the machine is unusable.
    """

    __slots__ = ("_replay_simple", "machine", "paused", "report")

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.report = LoadReport()
        self.paused = True
        self._replay_simple = getattr(machine, "replay_run", None) or _one_by_one(machine)

    def run(self, log: ReadableLog) -> Iterator[None]:
        """Replays a log from `report.end_offset` to its committed end.

        The caller may drop the generator at a pause. A new run, on any handle of the same log, continues there.
        """
        report = self.report
        until_pause = SLICE_RECORDS
        self.paused = False
        for run in log.runs(report.end_offset or None):
            done_before = report.records + report.unknown + report.batches
            self._replay_run(run)
            until_pause -= report.records + report.unknown + report.batches - done_before
            if until_pause <= 0:
                until_pause = SLICE_RECORDS
                self.paused = True
                yield
                self.paused = False
        self.paused = True

    def _replay_run(self, run: Run) -> None:
        report = self.report
        at = 0
        while at < len(run):
            simple = simple_run(run, at)
            if simple.stop > at:
                try:
                    unknown = self._replay_simple(run, at, simple.stop, report.end_offset)
                except Exception as error:
                    _note_offset(error, run[at : simple.stop], self.machine)
                    raise
                report.batches += simple.stop - at
                report.size_bytes += simple.size_bytes
                report.records += simple.records - unknown
                report.unknown += unknown
                report.end_offset = simple.next_offset
                at = simple.stop
            else:
                report.end_offset = _replay_special(run[at][1], report.end_offset, self.machine, report)
                at += 1


class ReadAhead:
    """The replay of a log that another node still writes, before this node leads its partition.

    Attributes:
        replay: the replay with which the next load continues; None: the next load reads the whole log.
    """

    __slots__ = ("replay",)

    def __init__(self) -> None:
        self.replay: Replay | None = None

    def begin(self, log: ReadableLog, replay: Replay, shard: object) -> Iterator[None]:
        """Begins to read the log ahead of the leader change.

        Args:
            log: the log that another node writes.
            replay: a new replay; it becomes the attribute `replay`.
            shard: the shard, for log lines.

        Returns:
            An iterator that reads the log with `replay`. Each step reads one part, so the caller can run it in slices.
        """
        self.replay = replay
        return self._run(log, replay, shard)

    def _run(self, log: ReadableLog, replay: Replay, shard: object) -> Iterator[None]:
        if self.replay is not replay:
            return  # it was stopped, or taken over by a load, before its first slice
        try:
            for _ in replay.run(log):
                yield
                if self.replay is not replay:
                    return
        except Exception as error:
            self.replay = None
            log_failure(
                logger,
                error,
                "%r: cannot read the log ahead of the leader change; this node reads the whole log when it becomes the "
                "leader, so the change takes longer%s",
                shard,
                next_step(error),
            )

    def finish(self) -> Replay | None:
        """Ends the reading, and returns its replay; None if there is none."""
        replay, self.replay = self.replay, None
        return replay


def replay_batch(batch: bytes, machine: Any) -> None:
    """Replays one batch of any kind, without the fast path of a load."""
    _replay_special(batch, 0, machine, LoadReport())


def _note_offset(error: Exception, run: Run, machine: Any) -> None:
    """Adds the offset of the first undecodable record to the error, because the compiled replay does not report it."""
    with contextlib.suppress(CorruptBatchError):  # `error` already names the batch
        for _, batch in run:
            for offset, _, key, value in iter_entries(batch):
                try:
                    machine.decode(key, value)
                except Exception:
                    error.add_note(f"the record at offset {offset} cannot be decoded")
                    return


def _replay_special(batch: bytes, from_offset: int, machine: Any, report: LoadReport) -> int:
    """Replays a batch that is a marker, transactional, compressed or empty; returns the next offset."""
    header = parse_header(batch)
    report.batches += 1
    report.size_bytes += len(batch)
    if header.is_control:
        # A marker without a record: Kafka's compaction leaves it if no record of its transaction remains.
        marker = parse_control(batch) if header.record_count else None
        if marker is not None and marker.is_end_marker:
            machine.replay_marker(header.base_offset, header.producer_id, header.producer_epoch, marker.is_commit)
    elif header.record_count:
        producer_id = header.producer_id if header.is_transactional else -1
        unknown = _replay_records(batch, from_offset, producer_id, machine)
        report.records += header.record_count - unknown
        report.unknown += unknown
    return header.next_offset


def _one_by_one(machine: Any) -> Callable[[Run, int, int, int], int]:
    """Returns a `replay_run` for a machine that does not implement it; it replays record by record."""

    def replay(run: Run, start: int, stop: int, from_offset: int) -> int:
        unknown = 0
        for base_offset, batch in run[start:stop]:
            # Compaction during the load may have merged this batch with batches that were replayed before.
            unknown += _replay_records(batch, max(from_offset, base_offset), -1, machine)
            from_offset = last_offset(batch) + 1
        return unknown

    return replay


def _replay_records(batch: Any, from_offset: int, producer_id: int, machine: Any) -> int:
    """Replays the records of a batch from an offset on; returns the number of records of unknown types."""
    decode, replay = machine.decode, machine.replay
    unknown = 0
    for offset, _, key, value in iter_entries(batch, decompress=decompress):
        if offset < from_offset:
            continue
        typed = decode(key, value)
        if typed is None:
            unknown += 1
        else:
            replay(offset, producer_id, *typed)
    return unknown
