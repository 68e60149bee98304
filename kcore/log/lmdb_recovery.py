"""Loading the partitions of a data folder at its opening, with the checks that are cheap enough for each start."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from kcore.log.batch_header import damage, last_offset
from kcore.log.data_folder import DATA_NAME
from kcore.log.errors import DataFolderError, LogError
from kcore.log.interface import Finding, PartitionKey
from kcore.log.lmdb_layout import (
    DROPPED_PREFIX,
    LOG_DB,
    LOG_KEY,
    NEXT_NUMBER_KEY,
    PARTITION_PREFIX,
    SNAP_DB,
    SNAP_KEY,
    U32,
    parse_partition_meta_key,
    partition_meta_key,
    row_name,
)
from kcore.log.lmdb_pages import REMEDY
from kcore.log.lmdb_rows import DamagedRowError, get_row, value_of
from kcore.log.lmdb_values import key_at, last_batch, seek_containing, wrong_key
from kcore.log.write_set import PartitionMeta, StoredPartition

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment


def load_partitions(
    txn: Any, environment: LmdbEnvironment, path: str, allow_orphans: bool = False
) -> tuple[list[StoredPartition], list[int], int]:
    """Loads the partitions. Returns them by number, with the numbers of dropped partitions and the next free number.

    Args:
        txn: a read transaction.
        environment: the environment with the databases.
        path: the folder, for errors.
        allow_orphans: True to ignore batches and chunks of unknown partition numbers, for `verify`.

    Raises:
        DataFolderError: the metadata or the ends of a partition are damaged.
    """
    dropped, free = load_numbers(txn, environment, path)
    log_cursor = txn.cursor(environment.log_db)
    snap_cursor = txn.cursor(environment.snap_db)
    stored = []
    known: dict[int, PartitionKey] = {}
    for name, value in _prefixed(txn, environment, PARTITION_PREFIX):
        try:
            key = parse_partition_meta_key(name)
            meta = PartitionMeta.decode(value_of(name, value))
        except DamagedRowError as error:
            raise _damaged_row(path, error) from error
        except (ValueError, struct.error) as error:
            raise DataFolderError(path, f"damaged: {error}{REMEDY}", row_name(name)) from error
        if meta.number >= free or meta.number in known:
            wrong = "was never assigned" if meta.number >= free else f"also belongs to partition {known[meta.number]}"
            raise DataFolderError(path, f"damaged: its number {meta.number} {wrong}{REMEDY}", f"partition {key}")
        known[meta.number] = key
        try:
            end_offset, garbage = _ends(log_cursor, key, meta, path)
            garbage = garbage or _has_old_snapshot(snap_cursor, meta)
        except (struct.error, LogError) as error:
            raise DataFolderError(
                path, f"damaged: a key has a wrong size: {error}{REMEDY}", f"partition {key}"
            ) from error
        stored.append(StoredPartition(key, meta, end_offset, garbage))
    if not allow_orphans:
        for finding in stray_numbers(txn, environment, known):
            raise DataFolderError(path, f"damaged: {finding.detail}: `kcore log verify` shows more{REMEDY}", DATA_NAME)
    stored.sort(key=lambda partition: partition.meta.number)
    return stored, dropped, free


def load_numbers(txn: Any, environment: LmdbEnvironment, path: str) -> tuple[list[int], int]:
    """Loads the numbers of dropped partitions and the next free number; raises DataFolderError if they are damaged."""
    try:
        next_number = get_row(txn, environment.meta_db, NEXT_NUMBER_KEY)
        free = 0 if next_number is None else U32.unpack(next_number)[0]
        dropped = [U32.unpack(key[len(DROPPED_PREFIX) :])[0] for key, _ in _prefixed(txn, environment, DROPPED_PREFIX)]
    except DamagedRowError as error:
        raise _damaged_row(path, error) from error
    except struct.error as error:
        raise DataFolderError(path, f"damaged: {error}{REMEDY}", "numbers of partitions") from error
    return dropped, free


def load_partition(txn: Any, environment: LmdbEnvironment, path: str, key: PartitionKey) -> StoredPartition | None:
    """Loads one partition, with the checks of `load_partitions`; None if it does not exist.

    Raises:
        DataFolderError: the metadata or the ends of the partition are damaged.
    """
    try:
        value = get_row(txn, environment.meta_db, partition_meta_key(key))
        if value is None:
            return None
        meta = PartitionMeta.decode(value)
        end_offset, garbage = _ends(txn.cursor(environment.log_db), key, meta, path)
        garbage = garbage or _has_old_snapshot(txn.cursor(environment.snap_db), meta)
    except DamagedRowError as error:
        raise _damaged_row(path, error) from error
    except (ValueError, struct.error, LogError) as error:
        raise DataFolderError(path, f"damaged: {error}{REMEDY}", f"partition {key}") from error
    return StoredPartition(key, meta, end_offset, garbage)


def _damaged_row(path: str, error: DamagedRowError) -> DataFolderError:
    return DataFolderError(path, f"damaged: the checksum of its metadata is wrong{REMEDY}", error.row)


def _prefixed(txn: Any, environment: LmdbEnvironment, prefix: bytes) -> list[tuple[bytes, Any]]:
    """Returns the keys with a prefix, and their values as LMDB stores them."""
    cursor = txn.cursor(environment.meta_db)
    pairs = []
    if cursor.set_range(prefix):
        for name, value in cursor.iternext():
            key = bytes(name)
            if not key.startswith(prefix):
                break
            pairs.append((key, value))
    return pairs


def _last_batch(cursor: Any, number: int) -> tuple[int, Any] | None:
    """Returns the partition's last batch, which precedes the first batch of the next partition number."""
    there = cursor.set_range(LOG_KEY.pack(number + 1, 0)) if number < 0xFFFFFFFF else False
    if not (cursor.prev() if there else cursor.last()):
        return None
    owner, base = key_at(cursor)
    return last_batch(base, cursor.value()) if owner == number else None


def _ends(cursor: Any, key: PartitionKey, meta: PartitionMeta, path: str) -> tuple[int, bool]:
    """Returns the end offset, and True if batches below the log start wait to be deleted.

    Checks the last batch completely, with its CRC. Checks that a batch contains the log start, unless compaction has
    removed it.
    """

    def refuse(what: str, offset: int) -> DataFolderError:
        return DataFolderError(path, f"damaged: {what}{REMEDY}", f"partition {key}, offset {offset}")

    start = meta.log_start_offset
    last = _last_batch(cursor, meta.number)
    if last is None:
        if meta.epochs and meta.epochs[-1].start_offset > start:
            raise refuse("batches of the newest epoch are missing", meta.epochs[-1].start_offset)
        return start, False
    base, batch = last
    wrong = damage(batch, base, check_crc=True)
    if wrong is not None:
        raise refuse(f"the last batch: {wrong[1]}", base)
    end = last_offset(batch) + 1
    if end < start:
        raise refuse(f"the log ends at {end}, below its start", start)
    cursor.set_range(LOG_KEY.pack(meta.number, 0))
    first_base = key_at(cursor)[1]
    if start == end:
        return end, True
    kept = seek_containing(cursor, meta.number, start)
    if kept is None and start >= meta.cleaned_to:
        raise refuse("no batch contains the log start", start)
    return end, first_base < (start if kept is None else kept)


def _has_old_snapshot(cursor: Any, meta: PartitionMeta) -> bool:
    """Returns True if chunks of an uncommitted or old snapshot are left.

    Reads only the partition's first and last key: the chunks of any other snapshot sort before or after the committed
    snapshot.
    """
    kept = None if meta.snapshot is None else meta.snapshot.offset
    if not cursor.set_range(SNAP_KEY.pack(meta.number, 0, 0)):
        return False
    owner, offset, _ = SNAP_KEY.unpack(cursor.key())
    if owner != meta.number:
        return False
    if offset != kept:
        return True
    there = cursor.set_range(SNAP_KEY.pack(meta.number + 1, 0, 0))
    if not (cursor.prev() if there else cursor.last()):
        return False
    return bool(SNAP_KEY.unpack(cursor.key())[1] != kept)


def stray_numbers(txn: Any, environment: LmdbEnvironment, known: dict[int, PartitionKey]) -> list[Finding]:
    """Finds batches and chunks whose partition number is neither in `known` nor dropped, with one seek per number.

    Also finds keys that are too short for a partition number, if a seek ends at such a key.
    """
    findings = []
    for db, name, what in (
        (environment.log_db, LOG_DB, "batches"),
        (environment.snap_db, SNAP_DB, "snapshot chunks"),
    ):
        cursor = txn.cursor(db)
        number = 0
        while number <= 0xFFFFFFFF and cursor.set_range(U32.pack(number)):
            key = bytes(cursor.key())
            owner = int.from_bytes(key[:4].ljust(4, b"\x00"))
            if len(key) < U32.size:
                findings.append(Finding(None, None, "storage", wrong_key(name, key)))
            elif owner not in known and txn.get(DROPPED_PREFIX + U32.pack(owner), db=environment.meta_db) is None:
                findings.append(Finding(None, None, "orphan", f"{what} of unknown partition number {owner}"))
            number = owner + 1
    return findings


def wrong_keys(txn: Any, environment: LmdbEnvironment) -> list[Finding]:
    """Finds the keys of batches and chunks that have a wrong size. Reads all keys."""
    findings = []
    for db, name, size in (
        (environment.log_db, LOG_DB, LOG_KEY.size),
        (environment.snap_db, SNAP_DB, SNAP_KEY.size),
    ):
        keys = txn.cursor(db).iternext(values=False)
        findings += [Finding(None, None, "storage", wrong_key(name, bytes(key))) for key in keys if len(key) != size]
    return findings
