"""Planted defects of the commit pipeline and of the log."""

from __future__ import annotations

import os
from typing import Any

from kcore.broker.data import partition as data_partition
from kcore.log import engine as log_engine
from kcore.log import journal, journal_file, lmdb_writer
from kcore.runtime import commit
from tools.simulate.mutants.mutant import Mutant, Patch


def _released_on_failure() -> list[Patch]:
    original = commit.CommitPipeline._fail

    def fail(self: Any, participants: Any, responses: Any, error: BaseException) -> None:
        for pending in responses:
            if not pending.done:
                pending.complete(pending.after_commit)
        original(self, participants, responses, error)

    return [(commit.CommitPipeline, "_fail", fail)]


def _memory_kept_after_failure() -> list[Patch]:
    return [(commit.CommitPipeline, "_restore", lambda self, participant, error: True)]


def _partition_not_rolled_back() -> list[Patch]:
    def failed(self: Any, error: Exception) -> None:
        self.high_watermark = self.log.high_watermark
        self.producers.committed(self.high_watermark)
        self._update_last_stable_offset()
        self.unacknowledged_end = 0

    return [(data_partition.Partition, "failed", failed)]


def _background_error_ignored() -> list[Patch]:
    def write(self: Any) -> None:
        try:
            self._log.write(self.write_set)
        except Exception:
            self.write_set.is_durable = True
        finally:
            self._gate.release()

    return [(commit.BackgroundCommit, "write", write)]


def _journal_not_flushed() -> list[Patch]:
    def write(self: Any, data: bytes, at: int) -> None:
        journal_file._write_all(self._fd, data, at)

    return [(journal_file.JournalFile, "write", write)]


def _journal_not_replayed() -> list[Patch]:
    return [(journal, "load_entries", lambda data, stored, folder: [])]


def _last_entry_not_replayed() -> list[Patch]:
    original = journal_file.load_entries
    return [(journal, "load_entries", lambda data, stored, folder: original(data, stored, folder)[:-1])]


def _torn_entry_accepted() -> list[Patch]:
    def entry_at(data: bytes, at: int, identity: bytes | None = None) -> Any:
        if at < 0 or len(data) - at < journal_file.ENTRY_HEAD.size:
            return None
        _, size, number, flags, found = journal_file.ENTRY_HEAD.unpack_from(data, at)
        start = at + journal_file.ENTRY_HEAD.size
        if size > len(data) - start or (found != identity if identity is not None else found == bytes(16)):
            return None
        return journal_file.Entry(number, start, start + size), found, flags

    return [(journal_file, "entry_at", entry_at)]


def _other_area_not_read() -> list[Patch]:
    return [(journal_file, "AREAS", (0,))]


def _area_reused_before_its_move() -> list[Patch]:
    return [(journal.Journal, "move_full_area", lambda self, txn, environment: None)]


def _failed_write_counts_as_durable() -> list[Patch]:
    original = lmdb_writer.LmdbWriter._resolve

    def determine(self: Any) -> None:
        write_set = self._write_set
        original(self)
        if write_set is not None:
            write_set.is_durable = True

    return [(lmdb_writer.LmdbWriter, "_resolve", determine)]


def _journal_identity_reused() -> list[Patch]:
    class System:
        """A replacement of the module `os` whose `urandom` always returns the same bytes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(_SYSTEM, name)

        @staticmethod
        def urandom(size: int) -> bytes:
            return b"x" * size

    return [(journal, "os", System())]


_SYSTEM = os


def _one_record_too_many_deleted() -> list[Patch]:
    original = data_partition.Partition.delete_before

    def delete_before(self: Any, offset: int) -> int:
        return original(self, min(offset + 1, self.high_watermark))

    return [(data_partition.Partition, "delete_before", delete_before)]


def _failed_round_stays_staged() -> list[Patch]:
    original = log_engine.StagedLogEngine.fail

    def fail(self: Any, write_set: Any, error: BaseException) -> None:
        original(self, write_set, error)
        for sealed in write_set.partitions:
            for batch in sealed.batches:
                sealed.log.append(bytes(batch), max(self.node_epoch, 0))

    return [(log_engine.StagedLogEngine, "fail", fail)]


LOG_MUTANTS = (
    Mutant("released-on-failure", "a failed commit completes its responses", _released_on_failure),
    Mutant("memory-kept", "a failed commit leaves the shards' memory as it is", _memory_kept_after_failure),
    Mutant("no-rollback", "a failed commit leaves sequences of producers in memory", _partition_not_rolled_back),
    Mutant("background-error", "an error of a background commit is ignored", _background_error_ignored),
    Mutant("no-flush", "the journal is not flushed", _journal_not_flushed),
    Mutant("no-journal-replay", "the log ignores the journal when it opens", _journal_not_replayed),
    Mutant("last-entry-lost", "the log ignores the journal's last entry when it opens", _last_entry_not_replayed),
    Mutant("torn-entry", "the log accepts torn entries of the journal when it opens", _torn_entry_accepted),
    Mutant("other-area-unread", "the log reads only the first area of the journal when it opens", _other_area_not_read),
    Mutant("area-unmoved", "an area of the journal is used again without a move", _area_reused_before_its_move),
    Mutant(
        "unknown-result-durable",
        "a write whose result was unknown counts as durable",
        _failed_write_counts_as_durable,
        needs=("lmdb", "admin", "disk failure"),
    ),
    Mutant("identity-reused", "each journal has the identity of the one before", _journal_identity_reused),
    Mutant("delete-records-plus-one", "DeleteRecords deletes one record more", _one_record_too_many_deleted),
    Mutant("refused-appended", "the batches of a failed write are staged again", _failed_round_stays_staged),
)
