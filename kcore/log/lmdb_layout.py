"""Layout of an LMDB data folder: names of databases, keys, the format version and migrations from older versions.

Three named databases:

* `log`: partition number (u32) | base offset (u64), big-endian -> one or more consecutive record batches v2, as Kafka
  writes them. The key has the base offset of the first batch.
* `snap`: partition number (u32) | snapshot offset (u64) | chunk index (u32) -> chunk.
* `meta`: the keys below. From version 8 on, each value except that of `format` ends with a checksum
  (`kcore.log.row_checksum`).

Keys have the partition's number, because it is shorter than the 20-byte name. Also, the batches of a dropped partition
may still wait for `reclaim` when a new partition of the same name exists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kcore.log.errors import LogError
from kcore.log.interface import PartitionKey
from kcore.log.journal_file import JournalDamagedError, iter_batches
from kcore.log.row_checksum import with_checksum

FORMAT_VERSION: Final = 8
"""The format version that this code writes.

Version 2 added the end of the compacted part to a partition's metadata. Version 3 added the journal, as a database. In
version 4 the journal became a file, in version 5 a file of two areas. In version 6, the reference to the journal also
contains the identity at the start of the file. In version 7, a value of the log may have several batches. In version 8,
the rows of metadata have checksums.
"""
CHECKSUM_VERSION: Final = 8
"""The first version in which the rows of metadata have checksums."""

SHARED_BASE: Final = 500
"""The difference between the version of a folder that several processes serve, and the version of the same layout for a
single process.
"""
SHARED_VERSION: Final = SHARED_BASE + FORMAT_VERSION
"""The version of a folder that several processes serve.

Each node has a separate journal, so a process that does not know these journals must not open the folder. `fold`
changes the version to `FORMAT_VERSION`.
"""
SHARED_VERSIONS: Final = (504, 505, 506, 507, SHARED_VERSION)
"""The versions of shared folders that this code opens. The journals of version 504 have one area."""

FIRST_VERSION: Final = 1
DAMAGED_VERSION: Final = 1_000
"""Lowest version number that means damage. A smaller unknown number means that a newer kcore wrote the folder."""

LOG_DB: Final = b"log"
OLD_JOURNAL_DB: Final = b"journal"
"""Name of the database with the journal of format version 3.

It maps the number of an entry (u64) to batches, encoded as in an entry of the journal file.
"""
META_DB: Final = b"meta"
SNAP_DB: Final = b"snap"
CLUSTER_DB: Final = b"cluster"
"""Name of the database with the nodes and leaders of a folder that several processes serve.

`kcore.cluster.local` defines its layout.
"""

FORMAT_KEY: Final = b"format"
"""Key of the format version. The row has no checksum, because older versions of kcore must be able to read it."""
FORMAT_COPY_KEY: Final = b"format_copy"
"""Key of a copy of the format version, in a row with a checksum."""
NODE_EPOCH_KEY: Final = b"node_epoch"
JOURNAL_KEY: Final = b"journal"
"""Key of the reference to the journal in use. It is missing while no journal is in use, such as after a clean close."""
NODE_JOURNAL_PREFIX: Final = b"journal:"
"""Prefix of the key of the reference to a node's journal, if several processes serve the folder.

The node id (i32) follows the prefix.
"""
CLUSTER_EPOCH_KEY: Final = b"cluster_epoch"
"""Key of the highest epoch of any leader or node of a folder that several processes serve."""
NEXT_NUMBER_KEY: Final = b"next_partition_number"
PARTITION_PREFIX: Final = b"partition:"
DROPPED_PREFIX: Final = b"dropped:"
USER_PREFIX: Final = b"user:"

META_KEYS: Final = frozenset(
    (FORMAT_KEY, FORMAT_COPY_KEY, NODE_EPOCH_KEY, JOURNAL_KEY, CLUSTER_EPOCH_KEY, NEXT_NUMBER_KEY)
)
META_PREFIXES: Final = (PARTITION_PREFIX, DROPPED_PREFIX, USER_PREFIX, NODE_JOURNAL_PREFIX)

U32: Final = struct.Struct(">I")
U64: Final = struct.Struct(">Q")
LOG_KEY: Final = struct.Struct(">IQ")
SNAP_KEY: Final = struct.Struct(">IQI")
_PARTITION: Final = struct.Struct(">16si")

Migration = Callable[[Any, Mapping[bytes, Any]], None]
"""The type of functions that migrate a folder from one version to the next.

The arguments are the write transaction, in which the new version is written afterwards, and the open databases by name.
"""


def _allow_compaction(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 1 to 2 without a change. A log whose metadata has no end of compaction was never compacted."""


def _add_journal(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 2 to 3 without a change.

    The new version number makes older code, which ignores journals, refuse the folder.
    """


def _move_old_journal(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 3 to 4: moves the batches of the journal's database to the log, and removes the database."""
    journal = databases.get(OLD_JOURNAL_DB)
    if journal is None:
        return
    pairs = []
    with txn.cursor(journal) as cursor:
        for expected, (key, value) in enumerate(cursor.iternext()):
            if key != U64.pack(expected):
                raise JournalDamagedError(f"expected commit {expected}, found the key {key.hex()}")
            for number, base, batch in iter_batches(value, 0, len(value), f"entry {expected}"):
                pairs.append((LOG_KEY.pack(number, base), batch))
    with txn.cursor(databases[LOG_DB]) as cursor:
        consumed, _ = cursor.putmulti(sorted(pairs))
    if consumed != len(pairs):
        raise LogError(f"only {consumed} of {len(pairs)} batches could be moved out of the old journal")
    txn.drop(journal)


def _add_area(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 4 to 5 without a change. The opening then moves the journal to the log, as after a crash."""


def _add_identity_before(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 5 to 6 without a change.

    The new version number makes older code, which cannot read the reference, refuse the folder.
    """


def _allow_several_batches(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 6 to 7 without a change.

    The new version number makes older code, which expects one batch in each value, refuse the folder.
    """


def _add_checksums(txn: Any, databases: Mapping[bytes, Any]) -> None:
    """Migrates version 7 to 8: adds the checksums of the rows of metadata."""
    meta = databases[META_DB]
    with txn.cursor(meta) as cursor:
        rows = [(bytes(key), bytes(value)) for key, value in cursor.iternext()]
    for key, value in rows:
        if key != FORMAT_KEY:
            require_put(txn.put(key, with_checksum(key, value), db=meta))


MIGRATIONS: Final[dict[int, Migration]] = {
    1: _allow_compaction,
    2: _add_journal,
    3: _move_old_journal,
    4: _add_area,
    5: _add_identity_before,
    6: _allow_several_batches,
    7: _add_checksums,
}
"""Format version -> migration from this version to the next."""


class FormatError(Exception):
    """The error for a folder whose format version is damaged, or is not supported by this code."""


def parse_version(stored: bytes | None, otherwise: int) -> int:
    """Returns the format version in a stored value; `otherwise` if the value is missing or has a wrong size."""
    return int(U32.unpack(stored)[0]) if stored is not None and len(stored) == U32.size else otherwise


def version_has_checksums(version: int) -> bool:
    """Returns True if the rows of metadata have checksums in a folder of format `version`.

    Args:
        version: a format version that this code can open.
    """
    return (version - SHARED_BASE if version in SHARED_VERSIONS else version) >= CHECKSUM_VERSION


def put_version(txn: Any, meta: Any, version: int) -> None:
    """Writes the format version and its copy.

    Args:
        txn: a write transaction.
        meta: the database of metadata.
        version: the version.

    Raises:
        LogError: LMDB refused a value.
    """
    value = U32.pack(version)
    for key, stored in ((FORMAT_KEY, value), (FORMAT_COPY_KEY, with_checksum(FORMAT_COPY_KEY, value))):
        require_put(txn.put(key, stored, db=meta))


def require_put(stored: bool) -> None:
    """Raises LogError if LMDB refused to replace a value. `stored` is the result of LMDB's `put`."""
    if not stored:
        raise LogError("LMDB refused to replace a value")


def is_meta_key(key: bytes) -> bool:
    """Returns True if a row of metadata can have this key."""
    return key in META_KEYS or key.startswith(META_PREFIXES)


def row_name(key: bytes) -> str:
    """Returns the name of a row of metadata for an error: the partition, or the key."""
    partition = partition_of_row(key)
    if partition is not None:
        return f"partition {partition}"
    if key.startswith(USER_PREFIX):
        return f"metadata {key[len(USER_PREFIX) :].decode(errors='replace')!r}"
    return f"metadata {key!r}"


def partition_of_row(key: bytes) -> PartitionKey | None:
    """Returns the partition to which a row of metadata belongs; None for other rows."""
    if key.startswith(PARTITION_PREFIX) and len(key) == len(PARTITION_PREFIX) + _PARTITION.size:
        return parse_partition_meta_key(key)
    return None


def partition_meta_key(key: PartitionKey) -> bytes:
    """Returns the key of a partition's metadata."""
    return PARTITION_PREFIX + _PARTITION.pack(*key)


def parse_partition_meta_key(data: bytes) -> PartitionKey:
    """Returns the partition of a `partition_meta_key`; raises struct.error for a key of another size."""
    return PartitionKey(*_PARTITION.unpack(data[len(PARTITION_PREFIX) :]))


def refuse_newer(found: int, target: int = FORMAT_VERSION) -> None:
    """Raises FormatError if version `found` is newer than `target`."""
    if found > target:
        raise FormatError(
            f"format version {found} is newer than {target}, the newest version that this kcore supports; use a newer "
            "kcore"
        )


def migrate(
    txn: Any,
    databases: Mapping[bytes, Any],
    found: int,
    target: int = FORMAT_VERSION,
    migrations: Mapping[int, Migration] | None = None,
) -> None:
    """Migrates a folder from version `found` to `target`, step by step, in `txn`. Raises FormatError for an unsupported
    version.

    Any newer version is refused, because this code does not know its layout.
    """
    refuse_newer(found, target)
    steps = MIGRATIONS if migrations is None else migrations
    for version in range(found, target):
        step = steps.get(version)
        if step is None:
            raise FormatError(
                f"no migration from format version {found} to {target}: the step from {version} is unknown"
            )
        step(txn, databases)
    if found != target:
        put_version(txn, databases[META_DB], target)
