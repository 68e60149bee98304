"""A consistent view of a data folder that several processes serve: a read transaction, and the matching journals."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import lmdb

from kcore.log.data_folder import open_private
from kcore.log.errors import DataFolderError, LogError
from kcore.log.journal_file import JOURNAL_NAME, JournalDamagedError, load_entries, read_file
from kcore.log.lmdb_rows import get_row_of_any_version
from kcore.log.node_journals import (
    CLUSTER_FOLDER,
    LOCK_NAME,
    journal_folders,
    journal_owners,
    node_folder,
    node_journal_key,
)

LIMIT_S: Final = 5.0
PAUSE_S: Final = 0.000_5
ATTEMPTS: Final = 20


def begin_shared(env: lmdb.Environment, meta: Any, source: str) -> tuple[lmdb.Transaction, dict[int, bytes]]:
    """Begins a read transaction, and reads the journals of all nodes at that moment.

    A node writes its journal, and other nodes move that journal, only while they hold the node's lock. So holding the
    locks of all nodes stops all writes of journals while they are read.

    Args:
        env: the folder's environment.
        meta: the database of metadata in `env`.
        source: the folder.

    Returns:
        The transaction, and by node id the content of each journal that is in use.

    Raises:
        DataFolderError: a journal is damaged.
        DamagedRowError: the reference to a journal is damaged.
        FormatError: the format version is damaged.
        LogError: a process holds a lock for too long.
    """
    for _ in range(ATTEMPTS):
        nodes = journal_folders(source)
        with _all_locked(source, nodes):
            txn = env.begin()
            try:
                owners = journal_owners(txn, meta)
                identities = {node_id: _reference(txn, meta, node_id) for node_id in owners}
                # else a node has registered in the meantime, and the loop tries again
                complete = identities.keys() <= set(nodes)
                if complete:
                    journals = {node_id: _read(source, node_id) for node_id in identities}
            except BaseException:
                txn.abort()
                raise
        if not complete:
            txn.abort()
            continue
        try:
            for node_id, journal in journals.items():
                _check(source, node_id, journal, identities[node_id])
        except BaseException:
            txn.abort()
            raise
        return txn, journals
    raise LogError(f"{source}: new processes register faster than the folder can be copied")


def _reference(txn: Any, meta: Any, node_id: int) -> bytes:
    return get_row_of_any_version(txn, meta, node_journal_key(node_id)) or b""


def _read(source: str, node_id: int) -> bytes:
    try:
        return read_file(node_folder(source, node_id))
    except JournalDamagedError as error:
        raise _damaged(source, node_id, error) from error


def _check(source: str, node_id: int, journal: bytes, identity: bytes) -> None:
    try:
        load_entries(journal, identity, node_folder(source, node_id))
    except JournalDamagedError as error:
        raise _damaged(source, node_id, error) from error


def _damaged(source: str, node_id: int, error: JournalDamagedError) -> DataFolderError:
    return DataFolderError(source, f"the journal of node {node_id}: {error}", JOURNAL_NAME)


def write_journals(target: str, journals: dict[int, bytes]) -> None:
    """Writes the journals into a copy of the folder."""
    if not journals:
        return
    os.mkdir(os.path.join(target, CLUSTER_FOLDER), 0o700)
    for node_id, journal in journals.items():
        folder = node_folder(target, node_id)
        os.mkdir(folder, 0o700)
        with open(os.path.join(folder, JOURNAL_NAME), "wb", opener=open_private) as file:
            file.write(journal)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _all_locked(source: str, nodes: list[int]) -> Iterator[None]:
    """Holds the locks of all nodes while the `with` block runs; acquires them in the order that the nodes use."""
    with ExitStack() as opened:
        for node_id in nodes:
            opened.enter_context(_locked(os.path.join(node_folder(source, node_id), LOCK_NAME)))
        yield


@contextmanager
def _locked(path: str) -> Iterator[None]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # the node has not registered yet, so it has no journal
        yield
        return
    try:
        end_s = time.monotonic() + LIMIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise LogError(
                        f"{path}: a process has kept this file locked for {LIMIT_S:g} s; try again"
                    ) from None
                time.sleep(PAUSE_S)
        yield
    finally:
        os.close(fd)  # releases the lock
