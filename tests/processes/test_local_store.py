"""The cluster store in a data folder, in addition to the tests of all stores: journals, locks, commits with an unknown
outcome, and opening by a single process.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.cluster.local import LocalClusterStore, locks, open_store
from kcore.cluster.local.locks import FileLock, is_alive
from kcore.cluster.local.storage import LocalStorage
from kcore.cluster.local.wake import Listener
from kcore.cluster.store import METADATA
from kcore.log import LmdbLogEngine, journal_file, verify_folder
from kcore.log.errors import DataFolderError, FencedWriteError, LogError, StoreUnavailableError
from kcore.log.journal_file import JOURNAL_NAME
from kcore.log.lmdb_copy import copy_folder
from kcore.log.lmdb_layout import partition_meta_key
from kcore.log.node_journals import LOCK_NAME, node_folder
from kcore.log.repair import repair_folder
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import become_controller, create, record
from tests.log.batches import AnyRecords, batch, contents, fill, key, stamped
from tests.log.raw_rows import make_older, put_stored, rows, with_checksum
from tests.processes.shared import LocalShared


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[LocalShared]:
    store = LocalShared(tmp_path)
    yield store
    store.close()


class Pair:
    """Node 1 is the controller; node 2 leads partition 1."""

    def __init__(self, shared: LocalShared) -> None:
        self.shared = shared
        self.first_store, lease, self.first = shared.node(1)
        self.controller = become_controller(self.first_store, lease, self.first)
        self.second_store, self.second_lease, self.second = shared.node(2)
        create(self.first, {0: 1, 1: 2})
        [self.log] = self.second.adopt([Leadership(key(1), 0)])
        fill(self.log, self.second, 1)  # the first write set begins the journal

    def take_over(self, epoch: int = 1) -> list[bytes]:
        """Moves partition 1 to node 1. Returns the partition's batches as node 1 reads them."""
        record(self.first)
        self.first.move(key(1), 1, epoch, epoch - 1)
        self.first.commit()
        [log] = self.first.adopt([Leadership(key(1), epoch)])
        return contents(log)

    def entries(self) -> int:
        """Counts the entries in the journal of node 2."""
        storage = self.second.shared
        assert isinstance(storage, LocalStorage)
        data = journal_file.read_file(node_folder(str(self.shared.path), 2))
        return len(journal_file.read_entries(data, storage._journal.reference)[0])


@pytest.fixture
def pair(shared: LocalShared) -> Pair:
    return Pair(shared)


def test_small_commits_are_entries_of_the_nodes_journal(pair: Pair) -> None:
    stored = contents(pair.log)
    assert pair.entries() == 0
    stored += fill(pair.log, pair.second, 3)
    assert pair.entries() == 1
    assert contents(pair.log) == stored
    assert pair.take_over() == stored


def test_a_node_continues_after_another_one_has_moved_its_journal(pair: Pair) -> None:
    record(pair.first)
    pair.first.create(key(5), 2, 0)
    pair.first.commit()
    [other] = pair.second.adopt([Leadership(key(5), 0)])
    kept = fill(other, pair.second, 2)
    stored = contents(pair.log) + fill(pair.log, pair.second, 2)
    assert pair.take_over() == stored
    kept += fill(other, pair.second, 2)
    assert pair.entries() == 1
    assert contents(other) == kept
    pair.log.append(batch(), 0)
    with pytest.raises(FencedWriteError):
        pair.second.commit()


@pytest.mark.parametrize("clean", [True, False])
def test_one_process_reads_all_records_of_several_in_the_folder(pair: Pair, clean: bool) -> None:
    stored = contents(pair.log) + fill(pair.log, pair.second, 3)
    if clean:
        pair.second_store.unregister(pair.second_lease)
    engine = pair.shared.closed_engine()
    log = engine.get(key(1))
    assert log is not None
    assert contents(log) == stored
    assert engine.node_epoch > pair.controller.epoch
    stored += fill(log, engine, 1, leader_epoch=engine.node_epoch)
    engine.close()
    assert verify_folder(pair.shared.path) == []


@pytest.mark.parametrize("part", ["pipe", "thread"])
def test_a_listener_that_cannot_start_leaves_no_descriptor_open(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files") if part == "pipe" else RuntimeError("can't start new thread")

    before = sorted(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "pipe") if part == "pipe" else (threading.Thread, "start")), fail)
        with pytest.raises(LogError if part == "pipe" else RuntimeError):
            Listener(str(tmp_path), lambda: None)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (b"node:" + bytes((0, 0, 0, 2)), lambda store: store.nodes()),
        (b"leader:" + bytes(15) + b"\x01" + bytes(4), lambda store: store.leaders()),
        (b"controller", lambda store: store.controller()),
    ],
)
@pytest.mark.parametrize("size", [0, 3])
def test_a_damaged_row_is_an_error_that_names_the_row(
    shared: LocalShared, name: bytes, read: Callable[[LocalClusterStore], object], size: int
) -> None:
    pair = Pair(shared)
    environment = pair.second_store._environment
    environment.transact(
        lambda txn: txn.put(name, with_checksum(name, b"x" * size), db=environment.cluster_db),
        "damaging a row of the test",
    )
    shown = name if b":" not in name else name.partition(b":")[0] + b":" + name.partition(b":")[2].hex().encode()
    with pytest.raises(LogError, match=f"row {shown.decode()} has {size} bytes"):
        read(pair.second_store)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (b"node:" + bytes((0, 0, 0, 2)), lambda store: store.nodes()),
        (b"leader:" + bytes(15) + b"\x01" + bytes(4), lambda store: store.leaders()),
        (b"controller", lambda store: store.controller()),
        (b"base", lambda store: store.register(3, description(3), TTL_MS)),
    ],
)
def test_a_flipped_bit_in_a_row_is_an_error_that_names_the_row(
    shared: LocalShared, name: bytes, read: Callable[[LocalClusterStore], object]
) -> None:
    pair = Pair(shared)
    store, stored = pair.second_store, contents(pair.log)
    assert store.damaged_rows() == []
    environment = store._environment

    def flip(txn: Any) -> None:
        row = bytearray(txn.get(name, db=environment.cluster_db))
        row[1] ^= 2
        txn.put(name, bytes(row), db=environment.cluster_db)
        txn.put(b"lfader:" + bytes(20), b"", db=environment.cluster_db)

    environment.transact(flip, "damaging a row of the test")
    shown = name if b":" not in name else name.partition(b":")[0] + b":" + name.partition(b":")[2].hex().encode()
    with pytest.raises(LogError, match=f"row {shown.decode()} has a wrong checksum; restart all processes"):
        read(store)
    details = [finding.detail for finding in store.damaged_rows()]
    assert len(details) == 2
    assert any(f"row {shown.decode()} has a wrong checksum" in detail for detail in details)
    assert any("unknown key b'lfader:" in detail for detail in details)
    engine = shared.closed_engine()  # the next start makes these rows again
    assert contents(engine.open(key(1))) == stored
    engine.close()


def test_a_damaged_row_of_a_partition_refuses_its_adoption(shared: LocalShared) -> None:
    pair = Pair(shared)
    environment = pair.second_store._environment
    name = partition_meta_key(key(1))
    environment.transact(
        lambda txn: txn.put(name, bytes(txn.get(name, db=environment.meta_db))[:-1] + b"x", db=environment.meta_db),
        "damaging a row of the test",
    )
    with pytest.raises(DataFolderError, match="the checksum of its metadata is wrong") as refused:
        pair.second_store.storage().look_up(key(1))
    assert refused.value.where == f"partition {key(1)}"
    (finding,) = pair.second_store.damaged_rows()
    assert finding.detail == f"partition {key(1)}: the checksum of its metadata is wrong"


@pytest.mark.parametrize("version", [506, 507])
@pytest.mark.parametrize("use", ["open", "copy", "repair"])
def test_a_folder_that_processes_of_an_older_version_served_remains_usable(
    pair: Pair, tmp_path: Path, version: int, use: str
) -> None:
    stored = contents(pair.log) + fill(pair.log, pair.second, 3)
    assert pair.entries() == 1
    pair.shared.close()  # like a crash
    folder = pair.shared.path
    make_older(folder, version)
    assert rows(folder)[b"journal:" + bytes((0, 0, 0, 2))]
    if use == "copy":
        copy_folder(str(folder), str(tmp_path / "copy"))
        folder = tmp_path / "copy"
    elif use == "repair":
        assert repair_folder(str(folder), AnyRecords, confirm=lambda losses: not losses).losses == []
    assert verify_folder(folder) == []
    engine = LmdbLogEngine(folder, "os", create=False)
    log = engine.get(key(1))
    assert log is not None
    assert contents(log) == stored
    assert engine.node_epoch > pair.controller.epoch
    engine.close()
    assert rows(folder)[b"format"] == (8).to_bytes(4)


def test_a_store_of_another_version_is_refused(shared: LocalShared) -> None:
    """The processes of a folder may run an older kcore, whose rows have no checksums."""
    shared.close()
    make_older(shared.path, 507)
    with pytest.raises(LogError, match="use format version 507, and this kcore uses 508: use the same version"):
        shared.open()
    put_stored(shared.path, b"format", (508).to_bytes(4))
    with pytest.raises(LogError, match="damaged: the copy of the format version is missing"):
        shared.open()


def test_a_folder_in_use_by_several_processes_is_copied_with_their_journals(pair: Pair, tmp_path: Path) -> None:
    stored = contents(pair.log) + fill(pair.log, pair.second, 3)
    assert pair.entries() == 1
    pair.shared.close()  # like a crash: another process would find the same files
    copy_folder(str(pair.shared.path), str(tmp_path / "copy"))
    engine = LmdbLogEngine(tmp_path / "copy", "os", create=False)
    log = engine.get(key(1))
    assert log is not None
    assert contents(log) == stored
    engine.close()
    assert verify_folder(tmp_path / "copy") == []


def test_a_copy_waits_for_the_write_of_a_node(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcore.log.shared_copy.LIMIT_S", 0.01)
    pair.shared.close()
    lock = FileLock(os.path.join(node_folder(str(pair.shared.path), 2), LOCK_NAME), 1.0)
    lock.acquire()
    try:
        with pytest.raises(LogError, match="kept this file locked"):
            copy_folder(str(pair.shared.path), str(tmp_path / "copy"))
    finally:
        lock.close()
    assert not (tmp_path / "copy").exists()
    copy_folder(str(pair.shared.path), str(tmp_path / "copy"))
    assert verify_folder(tmp_path / "copy") == []


def test_a_folder_without_the_journal_of_a_node_is_not_copied(pair: Pair, tmp_path: Path) -> None:
    fill(pair.log, pair.second, 3)
    pair.shared.close()
    (Path(node_folder(str(pair.shared.path), 2)) / JOURNAL_NAME).unlink()
    with pytest.raises(DataFolderError, match="the journal of node 2"):
        copy_folder(str(pair.shared.path), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_repair_reads_the_journals_of_nodes(pair: Pair, tmp_path: Path) -> None:
    stored = contents(pair.log) + fill(pair.log, pair.second, 3)
    assert pair.entries() == 1
    pair.shared.close()
    copy = tmp_path / "copy"
    done = repair_folder(str(pair.shared.path), AnyRecords, copy_to=str(copy), confirm=lambda losses: not losses)
    assert done.losses == []
    assert (copy / "cluster" / "node-2" / "journal").exists()
    assert verify_folder(pair.shared.path) == []
    engine = pair.shared.closed_engine()
    log = engine.get(key(1))
    assert log is not None
    assert contents(log) == stored
    assert engine.node_epoch > pair.controller.epoch
    engine.close()


class FailingFlush:
    """A patch that makes flushes of the journals fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = True
        flush = journal_file._FLUSH

        def failing(fd: int) -> None:
            if self.fails:
                raise OSError(errno.EIO, "Input/output error")
            flush(fd)

        monkeypatch.setattr(journal_file, "_FLUSH", failing)


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    shared = LocalShared(tmp_path)
    monkeypatch.setattr(shared, "open", lambda: opened(shared))
    yield Pair(shared)
    shared.close()


def opened(shared: LocalShared) -> LocalClusterStore:
    """Opens a store that flushes its writes."""
    store = LocalClusterStore(str(shared.path), "fsync", shared.clock.monotonic_ms)
    shared._opened.append(store)
    return store


def test_a_damaged_journal_of_a_node_refuses_the_folder(synced: Pair) -> None:
    fill(synced.log, synced.second, 1)
    fill(synced.log, synced.second, 1)
    synced.shared.close()
    path = Path(node_folder(str(synced.shared.path), 2)) / "journal"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    before = (synced.shared.path / "data.mdb").read_bytes()
    with pytest.raises(DataFolderError, match="journal is damaged"):
        synced.shared.closed_engine()
    assert (synced.shared.path / "data.mdb").read_bytes() == before


def test_a_failed_flush_of_the_journal_fails_the_commit(synced: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = contents(synced.log)
    flush = FailingFlush(monkeypatch)
    synced.log.append(batch(), 0)
    with pytest.raises(LogError, match="writing the journal"):
        synced.second.commit()
    flush.fails = False
    assert contents(synced.log) == stored
    stored += fill(synced.log, synced.second, 1)
    assert synced.take_over() == stored


def test_a_take_over_decides_a_commit_whose_flush_failed(synced: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush of node 2's journal fails, so node 2 does not know whether its commit is stored.

    Node 1 takes the partition over, finds the entry in the journal, and stores it. Node 2 then learns that its commit
    is durable.
    """
    stored = contents(synced.log)
    flush = FailingFlush(monkeypatch)
    data = batch()
    base = synced.log.append(data, 0)
    write_set = synced.second.seal()
    with pytest.raises(LogError, match="writing the journal"):
        synced.second.write(write_set)
    flush.fails = False
    stored.append(stamped(data, base, 0))
    assert synced.take_over() == stored
    synced.second.fail(write_set, LogError("the flush failed"))
    assert write_set.is_durable
    assert contents(synced.log) == stored


def test_a_stopped_writer_delays_others_but_no_renewal(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = pair.first.shared._environment  # type: ignore[attr-defined]
    monkeypatch.setattr(environment._writer, "_limit_s", 0.01)
    writer = FileLock(str(pair.shared.path / "cluster" / "writer"), 1.0)
    writer.acquire()
    record(pair.first)
    with pytest.raises(StoreUnavailableError, match="may be suspended"):
        pair.first.commit()
    stored = contents(pair.log) + fill(pair.log, pair.second, 1)  # an entry of the journal
    assert pair.second_store.renew([pair.second_lease], TTL_MS) == [True]
    writer.close()
    record(pair.first)
    pair.first.commit()
    assert pair.take_over() == stored


def test_a_stopped_node_in_a_commit_delays_its_fencing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FileLock(os.path.join(node_folder(str(pair.shared.path), 2), "lock"), 1.0)
    lock.acquire()
    pair.shared.advance(TTL_MS)
    [renewed] = pair.first_store.renew([pair.controller], TTL_MS)
    assert renewed
    own = pair.first_store._locks._lock(2)  # type: ignore[attr-defined]
    monkeypatch.setattr(own, "_limit_s", 0.01)
    with pytest.raises(StoreUnavailableError, match="may be suspended"):
        pair.first_store.fence(pair.second_lease, pair.controller)
    lock.close()
    assert pair.first_store.fence(pair.second_lease, pair.controller)


def test_a_dead_process_holds_no_lease(tmp_path: Path) -> None:
    script = (
        "import sys; from kcore.cluster.local.locks import LifeLock; life = LifeLock(sys.argv[1], 3);"
        " print('ready', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert is_alive(str(tmp_path), 3)
        assert not is_alive(str(tmp_path), 2)
        assert (tmp_path / "alive-3").read_text() == f"{child.pid}\n"
        child.kill()
        child.wait()
        assert not is_alive(str(tmp_path), 3)


def test_a_closed_store_ends_its_leases_at_once(pair: Pair) -> None:
    pair.second_store.close()
    found = pair.first_store.nodes()[1]
    assert (found.node_id, found.fenced, found.lease.remaining_ms) == (2, False, 0)
    assert pair.first_store.fence(found.lease, pair.controller)
    again = pair.shared.open()
    assert again.register(2, description(2), TTL_MS).epoch == found.lease.epoch + 2
    assert [name for name in os.listdir(node_folder(str(pair.shared.path), 2)) if name.startswith(locks.LIFE_PREFIX)]


def test_other_stores_are_notified_of_changes(pair: Pair) -> None:
    changed = threading.Event()
    pair.second_store.listen(changed.set)
    record(pair.first)
    pair.first.commit()
    assert changed.wait(60)
    changed.clear()
    pair.first_store.set_draining(2, True)
    assert changed.wait(60)


def test_a_partition_of_another_node_is_read_up_to_its_last_commit(pair: Pair) -> None:
    stored = contents(pair.log) + fill(pair.log, pair.second, 2)
    followed = pair.first.follow(key(1))
    assert followed is not None
    assert contents(followed) == stored
    stored += fill(pair.log, pair.second, 1)
    assert pair.first.follow(key(1)) is followed
    assert contents(followed) == stored


def test_a_partition_that_is_adopted_again_has_the_journals_batches(pair: Pair) -> None:
    stored = contents(pair.log) + fill(pair.log, pair.second, 2)
    assert pair.entries() == 1
    pair.second.release(key(1))
    [log] = pair.second.adopt([Leadership(key(1), 0)])
    assert contents(log) == stored
    stored += fill(log, pair.second, 1)
    assert contents(log) == stored


def test_commands_need_a_cluster(shared: LocalShared, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no process serves this folder"):
        open_store(f"local://{shared.path}")
    with pytest.raises(LogError, match="opening the data folder"):
        open_store(f"local://{tmp_path / 'missing'}")
    shared.closed_engine().close()
    with pytest.raises(LogError, match="no data of a cluster"):
        LocalClusterStore(str(shared.path))


def test_the_state_of_a_cluster_survives_its_processes(pair: Pair) -> None:
    pair.shared.close()
    store = pair.shared.open()
    assert [(row.key, row.leader) for row in store.leaders()] == [(METADATA, 1), (key(0), 1), (key(1), 2)]
    lease = store.register(2, description(2), TTL_MS)
    assert lease.epoch == pair.second_lease.epoch + 1
    with pytest.raises(FencedWriteError):  # the partition belongs to the earlier incarnation
        SharedLogEngine(store.storage()).adopt([Leadership(key(1), 0)])
