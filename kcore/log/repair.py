"""Repairs a damaged data folder: replaces the data file by a new file with all data that can be read.

The new data file also has the readable batches of the journal. It refers to no journal, so the old journal is not read
again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import lmdb

from kcore.log.data_folder import (
    DATA_NAME,
    FILE_MODE,
    LMDB_LOCK_NAME,
    REPAIR_NAME,
    DataFolder,
    open_private,
    reserve_lock_file,
)
from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.interface import Finding
from kcore.log.journal_file import JOURNAL_BYTES, JOURNAL_NAME
from kcore.log.lmdb_environment import MAX_MAP_SIZE_BYTES, log_error
from kcore.log.lmdb_layout import (
    DAMAGED_VERSION,
    FORMAT_COPY_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    LOG_DB,
    LOG_KEY,
    META_DB,
    SHARED_VERSIONS,
    SNAP_DB,
    SNAP_KEY,
    parse_version,
    partition_meta_key,
    version_has_checksums,
)
from kcore.log.lmdb_salvage import Salvage
from kcore.log.node_journals import journal_folders, node_folder
from kcore.log.repair_partition import Loss, PartitionPlan, RepairRules
from kcore.log.repair_plan import Plan, make_plan
from kcore.log.row_checksum import with_checksum

logger = logging.getLogger(__name__)

COPY_BYTES: Final = 1 << 20
COPY_PAGE_BYTES: Final = 4096
"""Size of the blocks that a copy of a file fills with zeros if the device cannot read them."""
TRANSACTION_BYTES: Final = 16 << 20
TRANSACTION_ENTRIES: Final = 20_000
FILE_OVERHEAD_BYTES: Final = 4 << 20
"""Space for an empty file and for the file system's own data, generously rounded up."""

Check = Callable[[str], Sequence[Finding]]
"""The type of a function that verifies the folder at a path. If it returns findings, the repair stops."""


class Repair(NamedTuple):
    """The result of a repair.

    Attributes:
        losses: the lost data, or the data that a repair would lose.
        changed: True if the folder needed a repair.
        copy: the folder with the copies of the damaged file and the journal; None if nothing was changed.
    """

    losses: list[Loss]
    changed: bool
    copy: str | None


def repair_folder(
    path: str,
    make_rules: Callable[[], RepairRules],
    *,
    check: Check | None = None,
    copy_to: str | None = None,
    dry_run: bool = False,
    confirm: Callable[[list[Loss]], bool] | None = None,
) -> Repair:
    """Repairs a folder that no process has open.

    The new file is built and verified beside the old file. Then one rename replaces the old file, so that after a crash
    the folder is either unchanged or repaired.

    Args:
        path: the folder.
        make_rules: creates the rules that check the batches of one plan. If the first plan loses data, the repair
            makes a second plan with other rules, and carries out the second plan.
        check: verifies the new file before it is used.
        copy_to: a folder that does not exist yet, for the damaged file; None: a name beside `path`.
        dry_run: True to change nothing.
        confirm: called before anything is written; False stops the repair.

    Returns:
        The losses, and the folder with the damaged file.

    Raises:
        DataFolderError: the folder is in use, is no kcore folder, or is of a newer version.
        LogError: there is not enough space, a file cannot be written, or the new file has findings; the folder is
            unchanged.
    """
    folder = DataFolder(path, create=False, check=False)
    try:
        salvage, plan = _plan(folder.path, make_rules)
        try:
            if dry_run or not plan.changed or (confirm is not None and not confirm(plan.losses)):
                return Repair(plan.losses, plan.changed, None)
            copy = _copy_name(folder.path) if copy_to is None else os.path.abspath(copy_to)
            _require_room(folder.path, copy, plan)
            try:
                with _kept_if_replaced(folder.path, copy):
                    _copy_damaged(folder.path, copy)
                    _build(folder.path, salvage, plan)
                    _check(folder.path, check)
                    _swap(folder)
            except OSError as error:
                raise LogError(f"repairing {folder.path}: {error}") from error
            finally:
                shutil.rmtree(os.path.join(folder.path, REPAIR_NAME), ignore_errors=True)
            return Repair(plan.losses, True, copy)
        finally:
            salvage.close()
    finally:
        folder.release()


def _plan(path: str, make_rules: Callable[[], RepairRules]) -> tuple[Salvage, Plan]:
    """Reads the file and makes a plan. If anything is lost, it plans again with older copies of pages."""
    salvage = Salvage(path)
    try:
        _require_known_version(path, salvage)
        rules = make_rules()
        plan = make_plan(salvage, rules)
        if plan.losses and not salvage.scanned:
            salvage.close()
            salvage = Salvage(path, scan=True)
            rules = make_rules()
            plan = make_plan(salvage, rules)
        rules.amend(plan, lambda partition: planned_batches(salvage, partition))
        if plan.losses or not _is_opened(path):
            plan = plan._replace(changed=True)
    except BaseException:
        salvage.close()
        raise
    return salvage, plan


def _is_opened(path: str) -> bool:
    """Returns True if LMDB can open the file and its databases. LMDB reads flags that the salvage ignores."""
    try:
        with lmdb.open(path, max_dbs=8, readonly=True, lock=False, create=False) as env:
            for name in (LOG_DB, META_DB, SNAP_DB):
                env.open_db(name, create=False)
    except lmdb.Error:
        return False
    return True


def _require_known_version(path: str, salvage: Salvage) -> None:
    found = salvage.meta.get(FORMAT_KEY)
    if found is None and not salvage.log and not salvage.meta:
        raise DataFolderError(path, "nothing of a kcore log can be read", DATA_NAME)
    number = parse_version(None if found is None else found[0][1], 0)
    if FORMAT_VERSION < number < DAMAGED_VERSION and number not in SHARED_VERSIONS:
        what = f"format version {number} is newer than this kcore supports ({FORMAT_VERSION}); use a newer kcore"
        raise DataFolderError(path, what, DATA_NAME)


def planned_batches(salvage: Salvage, partition: PartitionPlan) -> Iterator[tuple[int, bytes]]:
    """Yields the batches that a plan keeps in a partition, as (base offset, batch)."""
    for base, position, size in zip(partition.bases, partition.positions, partition.sizes, strict=True):
        made = partition.made.get(base)
        yield base, salvage.read(position, size) if made is None else made


def _copy_name(path: str) -> str:
    """Returns an unused name beside the folder."""
    number = 1
    while os.path.lexists(f"{path}.damaged-{number}"):
        number += 1
    return f"{path}.damaged-{number}"


def _require_room(path: str, copy: str, plan: Plan) -> None:
    """Raises LogError if there is not enough space for the copy and the new file."""
    if os.path.lexists(copy):
        raise LogError(f"{copy} already exists: the copy of the damaged file needs a new name", FailureReason.MISUSE)
    parent = os.path.dirname(copy)
    if not os.path.isdir(parent):
        raise LogError(f"{parent} is not a folder: the copy of the damaged file cannot be written there")
    copied = os.path.getsize(os.path.join(path, DATA_NAME)) + JOURNAL_BYTES * (1 + len(journal_folders(path)))
    # LMDB fills its pages at least by half, and each value has a key and a header.
    built = (
        2 * sum(sum(partition.sizes) + 64 * len(partition.sizes) for partition in plan.partitions) + FILE_OVERHEAD_BYTES
    )
    built += 2 * sum(found[1] for found in plan.chunks.values())
    built = min(built, copied + FILE_OVERHEAD_BYTES)
    needed = {os.stat(path).st_dev: (path, built)}
    device = os.stat(parent).st_dev
    needed[device] = (parent, needed.get(device, (parent, 0))[1] + copied)
    for volume, size in needed.values():
        disk = os.statvfs(volume)
        free = disk.f_bavail * disk.f_frsize
        if free < size:
            raise LogError(
                f"{volume} has {free} bytes free, and the repair needs {size} bytes: use --copy-to with a folder "
                "on another disk",
                FailureReason.DISK_FULL,
            )


@contextlib.contextmanager
def _kept_if_replaced(path: str, copy: str) -> Iterator[None]:
    """Creates the folder of the copy; removes it after a failure, unless the damaged file has been replaced already."""
    damaged = os.stat(os.path.join(path, DATA_NAME))
    os.mkdir(copy, 0o700)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if os.path.samestat(damaged, os.stat(os.path.join(path, DATA_NAME))):
                shutil.rmtree(copy, ignore_errors=True)
        raise


def _copy_damaged(path: str, copy: str) -> None:
    folders = [path, *(node_folder(path, node_id) for node_id in journal_folders(path))]
    for source in (os.path.join(folder, name) for folder in folders for name in (DATA_NAME, JOURNAL_NAME)):
        if not os.path.exists(source):
            continue
        target = os.path.join(copy, os.path.relpath(source, path))
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        with open(source, "rb") as damaged, open(target, "wb", opener=open_private) as file:
            unread_bytes = _copy_readable(damaged.fileno(), file)
            file.flush()
            os.fsync(file.fileno())
        if unread_bytes:
            logger.warning(
                "log repair: the device cannot read %d bytes of %s, so the copy %s has zeros there; replace the device",
                unread_bytes, source, target,
            )  # fmt: skip
    DataFolder.sync_folder(copy)
    DataFolder.sync_folder(os.path.dirname(copy))


def _copy_readable(source: int, target: BinaryIO) -> int:
    """Copies a file, with zeros for the pages that the device cannot read; returns the total size of these pages."""
    size = os.fstat(source).st_size
    at = unread_bytes = by_page_until = 0
    while at < size:
        in_page = at < by_page_until
        end = min(size, (at // COPY_PAGE_BYTES + 1) * COPY_PAGE_BYTES if in_page else at + COPY_BYTES)
        try:
            data = os.pread(source, end - at, at)
        except OSError:
            if in_page:
                unread_bytes += end - at
                at = end
            else:
                by_page_until = end
            continue
        if not data:
            break
        target.seek(at)
        target.write(data)
        at += len(data)
    target.truncate(size)
    return unread_bytes


def _build(path: str, salvage: Salvage, plan: Plan) -> None:
    """Writes the new file into a new folder within the damaged folder."""
    staging = os.path.join(path, REPAIR_NAME)
    os.mkdir(staging, 0o700)
    size = 2 * os.path.getsize(os.path.join(path, DATA_NAME)) + (64 << 20)
    reserve_lock_file(staging)
    try:
        with lmdb.open(staging, map_size=min(size, MAX_MAP_SIZE_BYTES), max_dbs=8, sync=False, mode=FILE_MODE) as env:
            log, meta, snap = (env.open_db(name) for name in (LOG_DB, META_DB, SNAP_DB))
            _write_all(env, log, _log_pairs(salvage, plan))
            chunks = sorted(plan.chunks.items())
            _write_all(env, snap, ((SNAP_KEY.pack(*at), salvage.read(found[0], found[1])) for at, found in chunks))
            _write_all(env, meta, iter(sorted(_meta_rows(plan).items())))
            env.sync(True)
    except lmdb.Error as error:
        raise log_error(error, "building the repaired file", os.path.join(staging, DATA_NAME), size) from error


def _meta_rows(plan: Plan) -> dict[bytes, bytes]:
    """Returns the rows of metadata, as a folder of the plan's format version stores them."""
    rows = {
        **plan.meta,
        **{partition_meta_key(partition.key): partition.meta.encode() for partition in plan.partitions},
    }
    version = rows.pop(FORMAT_KEY)
    if version_has_checksums(parse_version(version, FORMAT_VERSION)):
        rows[FORMAT_COPY_KEY] = version
        rows = {key: with_checksum(key, value) for key, value in rows.items()}
    return {**rows, FORMAT_KEY: version}


def _log_pairs(salvage: Salvage, plan: Plan) -> Iterator[tuple[bytes, bytes]]:
    for partition in sorted(plan.partitions, key=lambda one: one.meta.number):
        for base, batch in planned_batches(salvage, partition):
            yield LOG_KEY.pack(partition.meta.number, base), batch


def _write_all(env: lmdb.Environment, database: Any, pairs: Iterator[tuple[bytes, bytes]]) -> None:
    """Writes ascending pairs in transactions of bounded size."""
    more = True
    while more:
        more = False
        size_bytes = 0
        run = []
        for pair in pairs:
            run.append(pair)
            size_bytes += len(pair[1])
            if size_bytes >= TRANSACTION_BYTES or len(run) >= TRANSACTION_ENTRIES:
                more = True
                break
        with env.begin(write=True, db=database) as txn, txn.cursor() as cursor:
            consumed, added = cursor.putmulti(run, append=True)
        if not consumed == added == len(run):
            raise LogError(f"only {added} of {len(run)} values could be written", FailureReason.CORRUPT)


def _check(path: str, check: Check | None) -> None:
    findings = [] if check is None else check(os.path.join(path, REPAIR_NAME))
    if findings:
        shown = "; ".join(
            f"{finding.partition} at {finding.offset}: {finding.kind}, {finding.detail}" for finding in findings[:5]
        )
        raise LogError(
            "the repaired file is still damaged, so the folder was not changed; number of findings: "
            f"{len(findings)}; the first ones: {shown}",
            FailureReason.CORRUPT,
        )


def _swap(folder: DataFolder) -> None:
    staging = os.path.join(folder.path, REPAIR_NAME)
    fd = os.open(os.path.join(staging, DATA_NAME), os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(os.path.join(staging, DATA_NAME), os.path.join(folder.path, DATA_NAME))
    lock = os.path.join(folder.path, LMDB_LOCK_NAME)
    if os.path.exists(lock):
        os.unlink(lock)  # the lock file lists the readers of the old file
    folder.sync_folder(folder.path)
    folder.mark_closed()
