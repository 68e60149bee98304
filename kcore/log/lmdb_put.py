"""Writes a write set's batches, snapshot chunks and metadata in an LMDB write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.log.batch_header import base_offset
from kcore.log.errors import CorruptLogError
from kcore.log.lmdb_layout import (
    DROPPED_PREFIX,
    LOG_KEY,
    NEXT_NUMBER_KEY,
    SNAP_KEY,
    U32,
    USER_PREFIX,
    partition_meta_key,
    require_put,
)
from kcore.log.lmdb_rewrite import rewrite_batches
from kcore.log.lmdb_rows import put_row
from kcore.log.lmdb_values import contains, is_stored

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment
    from kcore.log.write_set import WriteSet
    from kcore_ext.log.partition import SealedPartition

_pack_log_key = LOG_KEY.pack


def put_batches(txn: Any, environment: LmdbEnvironment, write_set: WriteSet) -> None:
    """Writes the batches, snapshot chunks and rewrites of each partition.

    Raises:
        LogError: a batch is already stored, or LMDB refused a value.
    """
    log_db = environment.log_db
    with txn.cursor(log_db) as cursor:
        for sealed in write_set.partitions:
            if sealed.batches:
                _append(cursor, sealed)
            if sealed.chunks:
                _put_chunks(txn, environment, sealed)
            if sealed.rewrites:
                rewrite_batches(txn, log_db, sealed)


def _append(cursor: Any, sealed: SealedPartition) -> None:
    """Writes the new batches of a partition.

    If LMDB refuses a batch, a batch with this key is already stored: the memory of this process does not match the
    file.
    """
    batches, number = sealed.batches, sealed.number
    first = base_offset(batches[0])
    if len(batches) == 1:
        if not cursor.put(_pack_log_key(number, first), batches[0], overwrite=False):
            raise CorruptLogError(sealed.key, first, "a batch is already stored here")
        present = cursor.prev() and contains(cursor, number, first)
    else:
        pairs = [(_pack_log_key(number, base_offset(batch)), batch) for batch in batches]
        present = is_stored(cursor, number, first)
        consumed, added = cursor.putmulti(pairs, overwrite=False)
        if not consumed == added == len(pairs):
            raise CorruptLogError(sealed.key, first, f"{len(pairs) - added} of {len(pairs)} batches are already stored")
    if present:
        raise CorruptLogError(sealed.key, first, "a batch is already stored here")


def _put_chunks(txn: Any, environment: LmdbEnvironment, sealed: SealedPartition) -> None:
    for offset, index, data in sealed.chunks or ():
        # Chunks of an abandoned snapshot may still be stored: the newer chunks replace them.
        require_put(txn.put(SNAP_KEY.pack(sealed.number, offset, index), data, db=environment.snap_db))


def put_metas(txn: Any, environment: LmdbEnvironment, write_set: WriteSet) -> None:
    """Writes the metadata of partitions, drops and named values.

    Deletes the metadata of dropped partitions first. If a write set drops a partition and creates it again, both have
    the same metadata key, so a later deletion would delete the new metadata.

    Raises:
        LogError: LMDB refused a value.
    """
    meta_db = environment.meta_db
    for log in write_set.drops:
        txn.delete(partition_meta_key(log.key), db=meta_db)
        put_row(txn, meta_db, DROPPED_PREFIX + U32.pack(log._number), b"")
    for sealed in write_set.partitions:
        if sealed.meta is not None:
            put_row(txn, meta_db, partition_meta_key(sealed.key), sealed.meta.encode())
    for name, value in write_set.metas.items():
        key = USER_PREFIX + name.encode()
        if value is None:
            txn.delete(key, db=meta_db)
        else:
            put_row(txn, meta_db, key, value)
    if write_set.next_number:
        put_row(txn, meta_db, NEXT_NUMBER_KEY, U32.pack(write_set.next_number))
