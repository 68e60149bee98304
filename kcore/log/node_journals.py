"""The journals of several processes that serve one data folder, and the change back to a folder of one process.

Each process is a node, with a separate folder for its journal. LMDB has the identities of all journals. The holder of a
node's lock may move the journal of that node to the log. The holder is the node itself, a node that takes over its
partitions, or the next process that opens the folder.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, Any, Final

import lmdb

from kcore.log.journal import move_file
from kcore.log.journal_file import IDENTITY_BYTES, Reference
from kcore.log.lmdb_layout import (
    CLUSTER_DB,
    CLUSTER_EPOCH_KEY,
    FORMAT_VERSION,
    NODE_EPOCH_KEY,
    NODE_JOURNAL_PREFIX,
    U64,
    put_version,
)
from kcore.log.lmdb_rows import get_row, put_row

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment

CLUSTER_FOLDER: Final = "cluster"
"""Name of the folder, within the data folder, that has the files of the processes."""
LOCK_NAME: Final = "lock"
"""Name of a node's lock file in the node's folder."""
_NODE_PREFIX: Final = "node-"
_NODE_ID: Final = struct.Struct(">i")


def node_folder(path: str, node_id: int) -> str:
    """Returns the folder with the journal and the locks of a node."""
    return os.path.join(path, CLUSTER_FOLDER, f"{_NODE_PREFIX}{node_id}")


def journal_folders(path: str) -> list[int]:
    """Returns the ids of the nodes that have a folder for a journal, in order."""
    try:
        names = os.listdir(os.path.join(path, CLUSTER_FOLDER))
    except FileNotFoundError:
        return []
    ids = [name.removeprefix(_NODE_PREFIX) for name in names if name.startswith(_NODE_PREFIX)]
    return sorted(int(text) for text in ids if text.isdigit())


def node_journal_key(node_id: int) -> bytes:
    """Returns the metadata key of the reference to a node's journal."""
    return NODE_JOURNAL_PREFIX + _NODE_ID.pack(node_id)


def move_node_journal(txn: Any, environment: LmdbEnvironment, path: str, node_id: int, *, end: bool) -> bool:
    """Moves the journal of a node to the log, on behalf of that node. The caller holds the node's lock.

    Args:
        txn: the write transaction.
        environment: the environment with the databases.
        path: the data folder.
        node_id: the node whose journal is moved.
        end: True to use no journal afterwards; False to begin the next journal, for a node that runs.

    Returns:
        True if the journal had entries.

    Raises:
        JournalDamagedError: acknowledged batches are missing or damaged.
        DamagedRowError: the reference to the journal is damaged.
    """
    key = node_journal_key(node_id)
    stored = get_row(txn, environment.meta_db, key)
    if stored is None:
        return False
    entries = move_file(txn, environment, node_folder(path, node_id), stored)
    if end:
        txn.delete(key, db=environment.meta_db)
    elif entries:
        reference = Reference(os.urandom(IDENTITY_BYTES), 0)
        put_row(txn, environment.meta_db, key, reference.encode())
    return entries > 0


def fold(txn: Any, environment: LmdbEnvironment, path: str) -> None:
    """Changes a folder that several processes have served into a folder for a single process.

    It moves all journals to the log, and removes the state of the cluster. The number of openings becomes at least the
    highest epoch of a leader, so that the next leader has a higher epoch. The caller holds the folder's lock, and has
    migrated the rows of metadata to the newest version.

    Raises:
        JournalDamagedError: acknowledged batches are missing or damaged.
        DamagedRowError: a row of metadata is damaged.
        struct.error: a number has the wrong size.
    """
    meta = environment.meta_db
    for node_id in journal_owners(txn, meta):
        move_node_journal(txn, environment, path, node_id, end=True)
    with contextlib.suppress(lmdb.NotFoundError):
        txn.drop(environment.env_for_write.open_db(CLUSTER_DB, txn=txn, create=False))
    (openings,) = U64.unpack(get_row(txn, meta, NODE_EPOCH_KEY) or b"")
    (highest,) = U64.unpack(get_row(txn, meta, CLUSTER_EPOCH_KEY) or U64.pack(0))
    put_row(txn, meta, NODE_EPOCH_KEY, U64.pack(max(openings, highest)))
    txn.delete(CLUSTER_EPOCH_KEY, db=meta)
    put_version(txn, meta, FORMAT_VERSION)


def journal_owners(txn: Any, meta: Any) -> list[int]:
    """Returns the ids of the nodes whose journals are in use, according to the metadata database."""
    owners = []
    cursor = txn.cursor(meta)
    if cursor.set_range(NODE_JOURNAL_PREFIX):
        for name, _ in cursor.iternext():
            if bytes(name[: len(NODE_JOURNAL_PREFIX)]) != NODE_JOURNAL_PREFIX:
                break
            owners.append(_NODE_ID.unpack(bytes(name[len(NODE_JOURNAL_PREFIX) :]))[0])
    return owners
