"""Reads of a data folder: the batches in LMDB, and the later batches in the journal, in short read transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import lmdb

from kcore.log.batch_header import end_of_sound, offsets_and_timestamp
from kcore.log.errors import FailureReason, LogError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.journal import Journal, behind
from kcore.log.lmdb_environment import LmdbEnvironment, log_error
from kcore.log.lmdb_layout import LOG_DB, LOG_KEY, META_DB, SNAP_DB, SNAP_KEY, USER_PREFIX
from kcore.log.lmdb_recovery import stray_numbers, wrong_keys
from kcore.log.lmdb_rows import value_of
from kcore.log.lmdb_values import seek
from kcore.log.storage import Storage
from kcore_ext.batch.run import gather, spans


class LmdbReader(Storage):
    """The read operations of `LmdbStorage`, on any thread."""

    __slots__ = ("_environment", "_journal")

    _environment: LmdbEnvironment
    _journal: Journal

    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Implements `Storage.slice`."""
        environment = self._environment
        waiting = self._journal.waiting()
        found: list[tuple[int, bytes]] = []
        try:
            with environment.gate:
                txn = environment.begin_read(LOG_DB, buffers=False)
                try:
                    cursor = txn.cursor()
                    if seek(cursor, number, offset):
                        found = gather(cursor.iternext(), number, offset, limit, max_bytes, max_batches)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading batches") from error
        except (ValueError, struct.error) as error:  # a key or a value is too short
            raise LogError(f"reading batches: the log is damaged: {error}", FailureReason.CORRUPT) from error
        size_bytes = sum(len(batch) for _, batch in found) if any(number in one for one in waiting) else 0
        for entry in behind(waiting, number, offset, limit, found):
            if found and (size_bytes >= max_bytes or len(found) >= max_batches):
                break
            found.append(entry)
            size_bytes += len(entry[1])
        return found

    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Implements `Storage.summaries`."""
        environment = self._environment
        waiting = self._journal.waiting()
        found: list[BatchSummary] = []
        try:
            with environment.gate:
                txn = environment.begin_read(LOG_DB)
                try:
                    cursor = txn.cursor()
                    if seek(cursor, number, offset):
                        found = _summaries(cursor.iternext(), number, offset, limit, max_batches)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading batch headers") from error
        except (ValueError, struct.error) as error:  # a key or a value is too short
            raise LogError(f"reading batch headers: the log is damaged: {error}", FailureReason.CORRUPT) from error
        last = [(found[-1].base_offset, b"")] if found else []
        for _, batch in behind(waiting, number, offset, limit, last):
            if len(found) >= max_batches:
                break
            found.append(BatchSummary(*offsets_and_timestamp(batch), len(batch)))
        return found

    def _get(self, database: bytes, key: bytes, doing: str) -> bytes | None:
        environment = self._environment
        try:
            with environment.gate:
                txn = environment.begin_read(database)
                try:
                    value = txn.get(key)
                    return None if value is None else bytes(value)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, doing) from error

    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Implements `Storage.snapshot_chunk`."""
        return self._get(SNAP_DB, SNAP_KEY.pack(number, offset, index), "reading a snapshot")

    def get_meta(self, name: str) -> bytes | None:
        """Implements `Storage.get_meta`."""
        key = USER_PREFIX + name.encode()
        stored = self._get(META_DB, key, "reading metadata")
        return None if stored is None else value_of(key, stored)

    def meta_names(self, prefix: str) -> list[str]:
        """Implements `Storage.meta_names`."""
        environment = self._environment
        start = USER_PREFIX + prefix.encode()
        names = []
        try:
            with environment.gate:
                txn = environment.begin_read(META_DB)
                try:
                    cursor = txn.cursor()
                    if cursor.set_range(start):
                        for key in cursor.iternext(values=False):
                            data = bytes(key)
                            if not data.startswith(start):
                                break
                            names.append(data[len(USER_PREFIX) :].decode())
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading metadata") from error
        return sorted(names)

    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Implements `Storage.stray_entries`."""
        environment = self._environment
        try:
            with environment.gate:
                txn = environment.begin_read(META_DB)
                try:
                    found = stray_numbers(txn, environment, known)
                    return found + [finding for finding in wrong_keys(txn, environment) if finding not in found]
                finally:
                    txn.abort()
        except lmdb.Error as error:
            return [Finding(None, None, "storage", str(error))]


def _summaries(
    entries: Iterator[tuple[memoryview, memoryview]], number: int, offset: int, limit: int, max_batches: int
) -> list[BatchSummary]:
    """Returns the headers of the batches that `gather` would return.

    The summary of a damaged batch has no timestamp, and extends to the next batch.
    """
    found: list[BatchSummary] = []
    has_damage = False  # the last summary is that of a damaged batch
    for key, value in entries:
        owner, first = LOG_KEY.unpack(key)
        if owner != number:
            break
        for base, start, stop in spans(first, value):
            if found and base <= found[-1].base_offset:
                continue  # the key of the value is damaged
            if has_damage:
                found[-1] = found[-1]._replace(last_offset=min(base, limit) - 1)
                has_damage = False
            if found and found[-1].last_offset < offset:
                del found[-1]  # the value has a later batch with the offset
            if base >= limit or len(found) >= max_batches:
                return found
            batch = value[start:stop]
            has_damage = end_of_sound(batch, base, check_crc=False) < 0
            if has_damage:
                found.append(BatchSummary(base, base, -1, len(batch)))
            else:
                found.append(BatchSummary(*offsets_and_timestamp(batch), len(batch)))
    if has_damage:
        found[-1] = found[-1]._replace(last_offset=limit - 1)
    return found
