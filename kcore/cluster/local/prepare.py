"""Prepares a data folder for several processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import lmdb

from kcore.cluster.local.environment import SharedEnvironment
from kcore.cluster.local.rows import LeaderRow, Rows
from kcore.cluster.store import METADATA
from kcore.log.data_folder import FOLDER_MODE, DataFolder
from kcore.log.errors import CorruptLogError, LogError
from kcore.log.interface import PartitionKey
from kcore.log.lmdb_environment import file_error, log_error
from kcore.log.lmdb_layout import NEXT_NUMBER_KEY, SHARED_VERSION, U32, partition_meta_key, put_version
from kcore.log.lmdb_rows import get_row, put_row
from kcore.log.node_journals import CLUSTER_FOLDER
from kcore.log.write_set import PartitionMeta

NO_LEADER = -1


def prepare(path: str, leaders: Mapping[PartitionKey, tuple[int, int]], base: int) -> None:
    """Creates the database of nodes and leaders in a data folder that has the format for a single process.

    The caller holds the folder's lock. If a single process opens the folder later, that process removes the database
    (`kcore.log.node_journals.fold`).

    Args:
        path: the data folder.
        leaders: partition -> its leader and leader epoch according to the metadata log. This leader may not write until
            the controller has given it the partition in a later epoch.
        base: an epoch that is not lower than any epoch in the folder. New epochs of nodes and controllers are higher.

    Raises:
        LogError: the folder cannot be written, or has no metadata log.
    """
    environment = SharedEnvironment(path, True)

    def work(txn: Any) -> None:
        rows = Rows(txn, environment)
        rows.put_base(base)
        for key, (leader, epoch) in {**leaders, METADATA: (NO_LEADER, base)}.items():
            rows.put_leader(key, LeaderRow(_number(txn, environment, key), leader, epoch, 0))
        put_version(txn, environment.meta_db, SHARED_VERSION)

    try:
        os.makedirs(os.path.join(path, CLUSTER_FOLDER), FOLDER_MODE, exist_ok=True)
        DataFolder.sync_folder(path)
        environment.open(create=True)
        environment.transact(work, "preparing the folder for several processes")
    except lmdb.Error as error:
        raise log_error(error, "preparing the folder for several processes") from error
    except OSError as error:
        raise file_error(error, "preparing the folder for several processes") from error
    finally:
        environment.close()


def folder_is_prepared(path: str) -> bool:
    """Returns True if a data folder has the subfolder `CLUSTER_FOLDER`. An operator can have removed the subfolder."""
    return os.path.isdir(os.path.join(path, CLUSTER_FOLDER))


def _number(txn: Any, environment: SharedEnvironment, key: PartitionKey) -> int:
    """Returns the number of a partition. Creates the partition if a crash has prevented its creation."""
    value = get_row(txn, environment.meta_db, partition_meta_key(key))
    if value is not None:
        return PartitionMeta.decode(value).number
    if key == METADATA:
        raise CorruptLogError(key, None, "the folder has no metadata log")
    counted = get_row(txn, environment.meta_db, NEXT_NUMBER_KEY)
    if counted is None:
        raise LogError("the folder has no partitions")
    (number,) = U32.unpack(counted)
    meta = PartitionMeta(number, 0, (), None)
    put_row(txn, environment.meta_db, partition_meta_key(key), meta.encode())
    put_row(txn, environment.meta_db, NEXT_NUMBER_KEY, U32.pack(number + 1))
    return int(number)
