"""Reads of a data folder: the batches in LMDB, and the later batches in the journal, in short read transactions."""

from __future__ import annotations

from typing import Any

import lmdb

from kcore.log.batch_header import last_offset, offsets_and_timestamp
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.journal import Journal, behind
from kcore.log.lmdb_environment import LmdbEnvironment, log_error
from kcore.log.lmdb_layout import LOG_DB, LOG_KEY, META_DB, SNAP_DB, SNAP_KEY, U32, USER_PREFIX
from kcore.log.lmdb_recovery import stray_numbers
from kcore.log.storage import Storage
from kcore_ext.batch.run import gather

_pack_log_key = LOG_KEY.pack


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
                    if _seek(cursor, number, U32.pack(number), offset):
                        found = gather(cursor.iternext(), number, limit, max_bytes, max_batches)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading batches") from error
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
        prefix = U32.pack(number)
        unpack_key = LOG_KEY.unpack
        try:
            with environment.gate:
                txn = environment.begin_read(LOG_DB)
                try:
                    cursor = txn.cursor()
                    for key, value in cursor.iternext() if _seek(cursor, number, prefix, offset) else ():
                        owner, base = unpack_key(key)
                        if owner != number or base >= limit or len(found) >= max_batches:
                            break
                        found.append(BatchSummary(*offsets_and_timestamp(value), len(value)))
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading batch headers") from error
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
        return self._get(META_DB, USER_PREFIX + name.encode(), "reading metadata")

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
                    return stray_numbers(txn, environment, known)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            return [Finding(None, None, "storage", str(error))]


def _seek(cursor: Any, number: int, prefix: bytes, offset: int) -> bool:
    """Moves the cursor to the partition's batch that contains `offset`, or else to the first batch after `offset`."""
    if cursor.set_range(_pack_log_key(number, offset)):
        key = cursor.key()
        if bytes(key[:4]) == prefix and LOG_KEY.unpack(key)[1] == offset:
            return True
        if not cursor.prev():
            return bool(cursor.set_range(_pack_log_key(number, offset)))
    elif not cursor.last():
        return False
    if bytes(cursor.key()[:4]) == prefix and last_offset(cursor.value()) >= offset:
        return True
    return bool(cursor.next())
