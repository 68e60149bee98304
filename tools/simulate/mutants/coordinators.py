"""Planted defects of coordinators, of the data plane, and of maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kcore.broker.compaction import schedule
from kcore.broker.data import delayed_fetch, segments
from kcore.broker.metadata import producer_ids
from kcore.broker.share import share_partition
from kcore.group import committing_group, epoch_group
from kcore.group.classic import group as classic_group
from kcore.group.streams import processes
from kcore.log import partition
from kcore.log.errors import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import commit
from kcore.transaction import shard as transaction_shard
from kcore.transaction import timeouts
from tools.simulate.mutants.mutant import Mutant, Patch

LATE_MS = 10_000_000


def _acknowledged_before_commit() -> list[Patch]:
    original = commit.CommitPipeline.commit

    def early(self: Any) -> bool:
        for pending in self._responses:
            if not pending.done:
                pending.complete(pending.after_commit)
        return original(self)

    return [(commit.CommitPipeline, "commit", early)]


def _staging_error_ignored() -> list[Patch]:
    return [(commit.CommitPipeline, "abort_round", lambda self, error: None)]


def _accepts(owner: Any, refused: ErrorCode) -> list[Patch]:
    original = owner.validate_offset_commit

    def validate(self: Any, *arguments: Any) -> ErrorCode:
        code: ErrorCode = original(self, *arguments)
        return ErrorCode.NONE if code == refused else code

    return [(owner, "validate_offset_commit", validate)]


def _generation_unchecked() -> list[Patch]:
    return _accepts(classic_group.ClassicGroup, ErrorCode.ILLEGAL_GENERATION)


def _member_epoch_unchecked() -> list[Patch]:
    return _accepts(committing_group.CommittingGroup, ErrorCode.STALE_MEMBER_EPOCH)


def _tombstones_dropped_early() -> list[Patch]:
    original = schedule.CompactionRules  # type: ignore[attr-defined]
    return [
        (
            schedule,
            "CompactionRules",
            lambda *values, **named: original(*values, **named)._replace(delete_retention_ms=0),
        )
    ]


def _retention_early() -> list[Patch]:
    original = segments.Segments.retained_from

    def retained_from(self: Any, oldest_ms: int | None, max_bytes: int) -> int:
        return original(self, None if oldest_ms is None else oldest_ms + 3_000, max_bytes)

    return [(segments.Segments, "retained_from", retained_from)]


def _sessions_never_end() -> list[Patch]:
    def keep_session(self: Any, member: Any) -> None:
        if member.timer is None:
            member.timer = self.shard.context.schedule(self.shard.now.now_ms + LATE_MS, member)

    return [(epoch_group.EpochGroup, "keep_session", keep_session)]


def _markers_not_resumed() -> list[Patch]:
    def resume(self: Any) -> Any:
        self.take_prepared()
        yield None

    return [(transaction_shard.TransactionShard, "_resume", resume)]


def _timeouts_lost_after_load() -> list[Patch]:
    return [(timeouts.Timeouts, "watch", lambda self, transactional_id, transaction: None)]


def _tasks_given_twice() -> list[Patch]:
    return [(processes.TaskProcesses, "blocks_active", lambda self, task, process_id: False)]


def _producer_ids_reused() -> list[Patch]:
    original = producer_ids.producer_ids_record  # type: ignore[attr-defined]

    def record(node_id: int, next_producer_id: int) -> Any:
        return original(node_id, max(next_producer_id - producer_ids.BLOCK_SIZE, 1))

    return [(producer_ids, "producer_ids_record", record)]


def _delayed_fetch_unanswered() -> list[Patch]:
    return [(delayed_fetch.DelayedFetch, "on_complete", lambda self: None)]


def _locks_never_expire() -> list[Patch]:
    return [(share_partition.SharePartition, "lock_expired", lambda self, lock: None)]


def _read_error_is_an_end() -> list[Patch]:
    original = partition.StagedPartitionLog._iterate

    def iterate(self: Any, offset: int, limit: int, check_crc: bool) -> Iterator[list[tuple[int, bytes]]]:
        with suppress(LogError):
            yield from original(self, offset, limit, check_crc)

    return [(partition.StagedPartitionLog, "_iterate", iterate)]


COORDINATOR_MUTANTS = (
    Mutant("early-response", "responses are completed before their commit", _acknowledged_before_commit),
    Mutant("staging-error", "an error while a round is staged does not fail the round", _staging_error_ignored),
    Mutant("generation-unchecked", "a classic group takes commits of any generation", _generation_unchecked),
    Mutant("epoch-unread", "a consumer or streams group takes commits of stale member epochs", _member_epoch_unchecked),
    Mutant("tombstone-early", "compaction drops tombstones at once", _tombstones_dropped_early, needs=("keyed",)),
    Mutant("retention-early", "retention deletes records three seconds early", _retention_early),
    Mutant("endless-session", "sessions of consumer group members never end", _sessions_never_end),
    Mutant("no-resumption", "a load does not resume marker phases", _markers_not_resumed, True),
    Mutant("timeouts-after-load", "a load arms no transaction timeouts", _timeouts_lost_after_load),
    Mutant("shared-task", "a streams group gives a task away before it is released", _tasks_given_twice),
    Mutant("producer-id-reused", "a block of producer ids is allocated twice", _producer_ids_reused),
    Mutant("silent-fetch", "a waiting Fetch gets no response", _delayed_fetch_unanswered),
    Mutant("endless-lock", "locks of share records never expire", _locks_never_expire, needs=("share",)),
    Mutant(
        "read-error",
        "a failed read of the log counts as its end",
        _read_error_is_an_end,
        needs=("lmdb", "read failure"),
    ),
)
