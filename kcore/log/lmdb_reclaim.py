"""Deletes entries that no reader can reach any more, a bounded number at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.log.errors import FailureReason, LogError
from kcore.log.lmdb_layout import DROPPED_PREFIX, LOG_KEY, SNAP_DB, SNAP_KEY, U32
from kcore.log.lmdb_values import seek_containing, wrong_key

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment
    from kcore.log.storage import ReclaimTask


def reclaim_tasks(txn: Any, environment: LmdbEnvironment, tasks: list[ReclaimTask], max_entries: int) -> int:
    """Processes `tasks` in order in one write transaction; returns the number of finished tasks.

    Raises:
        LogError: a key has a wrong size.
    """
    remaining = max_entries
    done = 0
    with txn.cursor(environment.log_db) as log_cursor, txn.cursor(environment.snap_db) as snap_cursor:
        for task in tasks:
            remaining = _delete_batches(log_cursor, task, remaining)
            if remaining >= 0 and task.keep_snapshots is not None:
                remaining = _delete_chunks(snap_cursor, task, remaining)
            if remaining < 0:
                break
            if task.forget:
                txn.delete(DROPPED_PREFIX + U32.pack(task.number), db=environment.meta_db)
            done += 1
    return done


def _delete_batches(cursor: Any, task: ReclaimTask, remaining: int) -> int:
    """Deletes batches from the start of the log.

    Returns how many more entries may be deleted, or -1 if the limit was reached before all batches of the task were
    deleted.
    """
    limit = _first_kept(cursor, task)
    if not cursor.set_range(LOG_KEY.pack(task.number, 0)):
        return remaining
    while (key := cursor.key()) and bytes(key) < limit:
        if remaining == 0:
            return -1
        remaining -= 1
        if not cursor.delete():
            break
    return remaining


def _first_kept(cursor: Any, task: ReclaimTask) -> bytes:
    """Returns the key before which all values of the partition are deleted.

    It is the key of the value that contains the log start `task.below_offset`. If `below_offset` is None, it is a key
    after all values of the partition.
    """
    number = task.number
    if task.below_offset is None:
        return U32.pack(number) + b"\xff" * 9
    base = seek_containing(cursor, number, task.below_offset)
    return LOG_KEY.pack(number, task.below_offset if base is None else base)


def _delete_chunks(cursor: Any, task: ReclaimTask, remaining: int) -> int:
    """Deletes the chunks of snapshots that are not in `task.keep_snapshots`; one seek skips a kept snapshot."""
    keep = task.keep_snapshots or ()
    there = cursor.set_range(SNAP_KEY.pack(task.number, 0, 0))
    while there:
        key = bytes(cursor.key())
        if len(key) != SNAP_KEY.size:
            raise LogError(wrong_key(SNAP_DB, key), FailureReason.CORRUPT)
        number, offset, _ = SNAP_KEY.unpack(key)
        if number != task.number:
            break
        if offset in keep:
            there = cursor.set_range(SNAP_KEY.pack(number, offset + 1, 0))
            continue
        if remaining == 0:
            return -1
        remaining -= 1
        cursor.delete()
        there = bool(cursor.key())
    return remaining
