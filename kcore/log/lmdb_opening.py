"""The first steps of opening a data folder.

They check the databases and the format version, migrate a folder of an older version, and count the opening. The number
of openings is the node epoch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import lmdb

from kcore.log.data_folder import DATA_NAME
from kcore.log.errors import DataFolderError
from kcore.log.lmdb_layout import (
    FORMAT_KEY,
    FORMAT_VERSION,
    LOG_DB,
    META_DB,
    NODE_EPOCH_KEY,
    OLD_JOURNAL_DB,
    SHARED_BASE,
    SHARED_VERSIONS,
    SNAP_DB,
    U64,
    FormatError,
    migrate,
    parse_version,
    put_version,
)
from kcore.log.lmdb_rows import get_row, put_row, read_version, require_sound_rows
from kcore.log.node_journals import fold

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment


def needs_databases(path: str) -> bool:
    """Returns True if a data file has no databases yet, because a crash has interrupted its creation.

    Raises:
        DataFolderError: the file has other databases than kcore's.
        lmdb.Error: the file cannot be read.
    """
    env = lmdb.open(path, max_dbs=8, readonly=True, lock=False)
    try:
        with env.begin() as txn:
            names = {bytes(name) for name, _ in txn.cursor()}
        if names and not names >= {LOG_DB, META_DB, SNAP_DB}:
            raise DataFolderError(path, "an LMDB file, but not a file of kcore", DATA_NAME)
    finally:
        env.close()
    return not names


def stored_version(txn: Any, environment: LmdbEnvironment) -> int:
    """Returns the format version of the folder; `FORMAT_VERSION` if it is missing or has a wrong size."""
    return parse_version(txn.get(FORMAT_KEY, db=environment.meta_db), FORMAT_VERSION)


def open_format(txn: Any, environment: LmdbEnvironment, path: str, *, counts: bool) -> int:
    """Checks or writes the format version, migrates the folder, and checks the rows of metadata.

    Args:
        txn: the write transaction of the opening.
        environment: the environment with the databases.
        path: the folder.
        counts: True to count this opening; False if it is only a verification.

    Returns:
        The node epoch of this opening.

    Raises:
        FormatError: the version is unknown, or a number is damaged.
        DataFolderError: a row of metadata is damaged.
        JournalDamagedError: acknowledged batches in the journal of an older version are missing or damaged.
    """
    meta = environment.meta_db
    databases = {
        LOG_DB: environment.log_db,
        META_DB: meta,
        SNAP_DB: environment.snap_db,
        OLD_JOURNAL_DB: environment.old_journal(txn),
    }
    try:
        version = read_version(txn, meta)
        if version is None:
            if txn.stat(meta)["entries"]:
                raise FormatError("the file has no format version: it is not a file of kcore, or it is damaged")
            put_version(txn, meta, FORMAT_VERSION)
            put_row(txn, meta, NODE_EPOCH_KEY, U64.pack(0))
            return 0
        is_shared = version in SHARED_VERSIONS
        migrate(txn, databases, version - SHARED_BASE if is_shared else version)
        require_sound_rows(txn, meta, path)
        if is_shared:
            fold(txn, environment, path)
        node_epoch: int = U64.unpack(get_row(txn, meta, NODE_EPOCH_KEY) or b"")[0] + 1
    except struct.error as error:
        raise FormatError(f"damaged: the format version or the node epoch has a wrong size: {error}") from error
    if counts:
        put_row(txn, meta, NODE_EPOCH_KEY, U64.pack(node_epoch))
    return node_epoch
