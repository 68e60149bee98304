"""Replaces stored batches in a write transaction, for compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.log.lmdb_layout import LOG_KEY, require_put
from kcore.log.lmdb_values import find_batch, split

if TYPE_CHECKING:
    from kcore_ext.log.partition import SealedPartition


def rewrite_batches(txn: Any, log_db: Any, sealed: SealedPartition) -> None:
    """Replaces and deletes batches. A missing batch was deleted by retention, and stays deleted."""
    number = sealed.number
    with txn.cursor(log_db) as cursor:
        for base, batch in sealed.rewrites.items():
            key = LOG_KEY.pack(number, base)
            if not cursor.set_key(key) and find_batch(cursor, number, base) is None:
                continue
            if split(cursor):
                cursor.set_key(key)
            if batch is None:
                cursor.delete()
            else:
                require_put(cursor.put(key, batch))
