"""Damaged files: the opening refuses damage that is cheap to detect, and `kcore log verify` finds the rest. No damage
causes a crash.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
from pathlib import Path

import lmdb
import pytest

from kcore.cli import main
from kcore.inspect import Selection, folder_events
from kcore.log import CorruptLogError, DataFolderError, LmdbLogEngine, compact, data_folder, lmdb_salvage, verify_folder
from kcore.log.errors import FailureReason, LogError
from kcore.log.interface import EpochEntry, Finding
from kcore.log.lmdb_copy import copy_folder
from kcore.log.lmdb_layout import LOG_KEY, SNAP_KEY, partition_meta_key
from kcore.log.lmdb_pages import REMEDY, check_file, check_pages
from kcore.log.lmdb_salvage import Salvage
from kcore.log.repair import repair_folder
from kcore.log.salvaged_content import Tier
from kcore.spark.events.sources import FolderSource
from tests.log.batches import AnyRecords, batch, contents, fill, key, stamped
from tests.log.journals import encoded, leave_journal
from tests.log.raw_rows import put_stored, rows

PAGE = 4096


def make(folder: Path, batches: int = 60, size_bytes: int = 500) -> list[bytes]:
    """Makes a folder with one partition (number 0), which has `batches` batches of two records, and a snapshot."""
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    stored = fill(log, engine, batches, leader_epoch=1, records=2, size_bytes=size_bytes)
    for index in range(3):
        log.put_snapshot_chunk(4, index, bytes([index]) * 3000)
    log.commit_snapshot(4)
    engine.commit()
    engine.close()
    return stored


def patch(folder: Path, position: int, data: bytes) -> None:
    with open(folder / "data.mdb", "r+b") as file:
        file.seek(position)
        file.write(data)


def flip_in_batch(folder: Path, base_offset: int, at: int) -> None:
    """Flips a bit of a stored batch in the file."""
    data = (folder / "data.mdb").read_bytes()
    needle = stamped(batch(2, 500), base_offset, 1)[:21]
    positions = [at for at in range(len(data)) if data.startswith(needle, at)] if data.count(needle) > 1 else []
    for position in positions or [data.index(needle)]:
        patch(folder, position + at, bytes([data[position + at] ^ 0x10]))


def in_log(
    folder: Path, db: bytes = b"log", delete: bytes | None = None, put: tuple[bytes, bytes] | None = None
) -> None:
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True, db=env.open_db(db)) as txn:
        if delete is not None:
            assert txn.delete(delete)
        if put is not None:
            txn.put(*put)


def findings(folder: Path, deep: bool = True) -> list[tuple[int | None, str]]:
    return [(finding.offset, finding.kind) for finding in verify_folder(folder, deep)]


def refusal(folder: Path) -> DataFolderError:
    with pytest.raises(DataFolderError) as refused:
        LmdbLogEngine(folder).close()
    return refused.value


def test_a_sound_folder_has_no_findings(folder: Path) -> None:
    make(folder)
    assert findings(folder) == findings(folder, deep=False) == []


@pytest.mark.parametrize("pages", [0.2, 0.5, 0.8])
def test_a_truncated_file_is_refused_before_it_can_crash_the_process(folder: Path, pages: float) -> None:
    make(folder)
    size = (folder / "data.mdb").stat().st_size
    with open(folder / "data.mdb", "r+b") as file:
        file.truncate(int(size * pages) // PAGE * PAGE)
    error = refusal(folder)
    assert re.fullmatch(
        r"damaged: page \d+ is needed, which lies outside "
        rf"\(the file has {int(size * pages) // PAGE * PAGE} bytes\){REMEDY}",
        error.what,
    )
    assert error.where == "data.mdb"


@pytest.mark.parametrize(("size", "where"), [(100, "data.mdb, meta page 0"), (PAGE + 7, "data.mdb, meta page 1")])
def test_a_file_cut_within_its_meta_pages_is_refused(folder: Path, size: int, where: str) -> None:
    make(folder)
    with open(folder / "data.mdb", "r+b") as file:
        file.truncate(size)
    error = refusal(folder)
    assert (error.what, error.where) == (f"the file ends after {size} bytes", where)


@pytest.mark.parametrize("page", [0, 1])
@pytest.mark.parametrize("position", [0, 16, 20])
def test_garbage_in_a_meta_page_is_refused(folder: Path, page: int, position: int) -> None:
    make(folder)
    patch(folder, page * PAGE + position, b"\xa5" * 4)
    error = refusal(folder)
    assert error.where == f"data.mdb, meta page {page}"
    assert error.what in (
        f"damaged: this is not an LMDB meta page{REMEDY}",
        "LMDB data version 2779096485 is not supported, only 1",
    )


def test_a_meta_page_that_points_outside_the_file_is_refused(folder: Path) -> None:
    make(folder)
    main_root = 16 + 24 + 48 + 40
    for page in (0, 1):
        patch(folder, page * PAGE + main_root, struct.pack("=Q", 1 << 40))
    assert refusal(folder).what.startswith("damaged: root page number 1099511627776 is not between ")


TXN_ID_AT = 16 + 24 + 2 * 48 + 8
"""Position of the transaction number in a meta page."""


def leave_named_value(folder: Path) -> None:
    """Makes a folder whose last transaction has written a named value, as a killed process leaves it."""
    engine = LmdbLogEngine(folder.with_name("running"), "os")
    fill(engine.open(key()), engine, 3, size_bytes=300_000)
    engine.put_meta("last", b"value")
    engine.commit()
    shutil.copytree(folder.with_name("running"), folder)
    engine.close()


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_in_a_transaction_number_does_not_hide_the_last_transaction(folder: Path, bit: int) -> None:
    """LMDB uses the meta page with the highest transaction number, so it would use the state before the last
    transaction.
    """
    leave_named_value(folder)
    data = (folder / "data.mdb").read_bytes()
    effects = []
    for page in (0, 1):
        (folder / "data.mdb").write_bytes(data)
        at = page * PAGE + TXN_ID_AT
        patch(folder, at + bit // 8, bytes([data[at + bit // 8] ^ 1 << bit % 8]))
        try:
            engine = LmdbLogEngine(folder, "os")
            assert engine.get_meta("last") == b"value"
            engine.close()
            effects.append("none")
        except DataFolderError as error:
            effects.append(error.what.partition(";")[0].partition(" of ")[2])
            with pytest.raises(DataFolderError, match="of a meta page is wrong"):
                copy_folder(str(folder), f"{folder}-copy")
            repair_folder(str(folder), AnyRecords, copy_to=f"{folder}-{page}")
            engine = LmdbLogEngine(folder, "os")
            assert engine.get_meta("last") == b"value"
            assert len(contents(engine.open(key()))) == 3
            engine.close()
    assert set(effects) <= {"none", "a meta page is wrong"}
    assert effects != ["none", "none"]


def test_wrong_flags_of_the_list_of_free_pages_do_not_end_the_process(folder: Path) -> None:
    make(folder)
    for page in (0, 1):
        at = page * PAGE + 16 + 24 + 4
        patch(folder, at, bytes([(folder / "data.mdb").read_bytes()[at] ^ 4]))
    assert refusal(folder).what.startswith("damaged: the list of free pages has flags 0xc")


def test_a_flipped_bit_in_a_batch_is_found_by_deep_verify_and_stops_loading(folder: Path) -> None:
    make(folder)
    flip_in_batch(folder, 40, 300)
    assert findings(folder, deep=False) == []
    assert findings(folder) == [(40, "crc")]
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    loading = log.batches()
    assert [next(loading)[0] for _ in range(20)] == list(range(0, 40, 2))
    with pytest.raises(CorruptLogError, match="CRC") as error:
        next(loading)
    assert (error.value.offset, len(list(log.batches(check_crc=False)))) == (40, 60)
    engine.close()


def test_a_flipped_bit_in_the_last_batch_is_found_on_opening(folder: Path) -> None:
    make(folder)
    flip_in_batch(folder, 118, 200)
    error = refusal(folder)
    assert error.what.startswith("damaged: the last batch: the header has CRC ")
    assert error.where == f"partition {key()}, offset 118"


def test_a_flipped_bit_in_a_stored_base_offset_is_found(folder: Path) -> None:
    make(folder)
    flip_in_batch(folder, 40, 6)
    assert findings(folder)[0] == (40, "header")


def test_missing_batches_are_found(folder: Path) -> None:
    make(folder)
    in_log(folder, delete=LOG_KEY.pack(0, 50))
    assert findings(folder) == [(50, "gap")]
    engine = LmdbLogEngine(folder)
    with pytest.raises(CorruptLogError, match="no batch contains this offset") as error:
        list(engine.open(key()).batches())
    assert error.value.offset == 50
    with pytest.raises(CorruptLogError):
        engine.open(key()).read(51, 100)
    engine.close()
    in_log(folder, delete=LOG_KEY.pack(0, 0))
    assert refusal(folder).what == f"damaged: no batch contains the log start{REMEDY}"


def test_overlapping_batches_are_found(folder: Path) -> None:
    make(folder)
    in_log(folder, put=(LOG_KEY.pack(0, 51), stamped(batch(2, 500), 51, 1)))
    assert findings(folder) == [(51, "overlap"), (52, "overlap")], (
        "the batch overlaps with the one before, and the next one overlaps with it"
    )
    engine = LmdbLogEngine(folder)
    with pytest.raises(CorruptLogError):
        list(engine.open(key()).batches())
    engine.close()


def test_a_batch_of_the_wrong_epoch_is_found(folder: Path) -> None:
    make(folder)
    in_log(folder, put=(LOG_KEY.pack(0, 60), stamped(batch(2, 500), 60, 9)))
    assert findings(folder) == [(60, "epoch")]


def test_a_repair_takes_the_epochs_of_batches_if_the_metadata_is_older_than_the_first_epoch(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os")
    engine.open(key())
    engine.commit()
    engine.close()
    older = rows(folder)[partition_meta_key(key())]
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    stored = fill(log, engine, 2, leader_epoch=3) + fill(log, engine, 3, leader_epoch=4)
    engine.close()
    put_stored(folder, partition_meta_key(key()), older)
    assert findings(folder) == [(offset, "epoch") for offset in range(5)]
    done = repair_folder(str(folder), AnyRecords)
    assert [(loss.kind, loss.records) for loss in done.losses] == [("epoch", None)]
    assert verify_folder(folder) == []
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    assert (contents(log), log.committed_epochs) == (stored, [EpochEntry(3, 0), EpochEntry(4, 2)])
    engine.close()


def test_a_flipped_bit_in_the_epoch_of_a_log_without_epochs_is_found(folder: Path) -> None:
    """The CRC of a batch does not cover its epoch. Batches of a metadata log have no epoch (-1)."""
    engine = LmdbLogEngine(folder, "os")
    stored = fill(engine.open(key()), engine, 5, leader_epoch=-1, size_bytes=2_000)
    engine.close()
    name = LOG_KEY.pack(0, 2)
    in_log(folder, put=(name, stored[2][:12] + b"\xff\xff\xfb\xff" + stored[2][16:]))
    (found,) = verify_folder(folder)
    assert (found.offset, found.kind) == (2, "epoch")
    assert found.detail == "the batch has leader epoch -1025, but the metadata has -1"
    done = repair_folder(str(folder), AnyRecords)
    assert (done.losses, done.changed, verify_folder(folder)) == ([], True, [])
    engine = LmdbLogEngine(folder, "os")
    assert contents(engine.open(key())) == stored
    engine.close()


def test_a_log_that_another_program_emptied_is_refused(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    fill(log, engine, 1, leader_epoch=1)
    fill(log, engine, 1, leader_epoch=2)
    engine.close()
    for base in (0, 1):
        in_log(folder, delete=LOG_KEY.pack(0, base))
    assert refusal(folder).what == f"damaged: batches of the newest epoch are missing{REMEDY}"


def test_entries_of_unknown_partitions_are_found(folder: Path) -> None:
    make(folder)
    in_log(folder, put=(LOG_KEY.pack(7, 0), b"x"))
    in_log(folder, b"snap", put=(SNAP_KEY.pack(9, 0, 0), b"x"))
    assert [finding.detail for finding in verify_folder(folder)] == [
        "batches of unknown partition number 7",
        "snapshot chunks of unknown partition number 9",
    ]


@pytest.mark.parametrize(
    ("db", "name"),
    [
        (b"log", LOG_KEY.pack(0, 20)[:11]),
        (b"log", LOG_KEY.pack(0, 20) + b"x"),
        (b"log", b"\x00\x00\x00"),
        (b"log", b"\xff"),
        (b"snap", SNAP_KEY.pack(0, 4, 1)[:5]),
        (b"snap", SNAP_KEY.pack(0, 4, 1) + b"x"),
        (b"snap", b"\x00\x00"),
    ],
)
def test_a_key_of_a_wrong_size_is_found(folder: Path, db: bytes, name: bytes) -> None:
    stored = make(folder)
    in_log(folder, db, put=(name, b"value" * 20))
    text = f"database {db.decode()} has a key of {len(name)} bytes: {name.hex()}"
    assert Finding(None, None, "storage", text) in verify_folder(folder)
    assert main(["log", "verify", str(folder)]) == 1
    assert repair_folder(str(folder), AnyRecords).changed
    assert verify_folder(folder) == []
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    engine.close()


@pytest.mark.parametrize("name", [LOG_KEY.pack(0, 20) + b"x", b"\xff"])
def test_a_read_up_to_a_key_of_a_wrong_size_fails_with_an_error_of_the_log(folder: Path, name: bytes) -> None:
    make(folder)
    in_log(folder, put=(name, b"value" * 20))
    engine = LmdbLogEngine(folder, allow_orphans=True, tail_size_bytes=0)
    log = engine.open(key())
    for read in (lambda: contents(log), lambda: log.summaries(0, 1_000), lambda: log.find_by_timestamp(10_000)):
        with pytest.raises(LogError, match="the log is damaged") as caught:
            read()
        assert caught.value.reason == FailureReason.CORRUPT
    engine.close()


@pytest.mark.parametrize(("db", "name"), [(b"log", LOG_KEY.pack(0, 200)[:5] + b"\xff"), (b"snap", b"\x00\x00\x00\x01")])
def test_a_folder_with_a_wrong_last_key_is_refused(folder: Path, db: bytes, name: bytes) -> None:
    make(folder)
    in_log(folder, db, put=(name, b""))
    assert "a key has a wrong size" in refusal(folder).what


def test_damage_to_a_snapshot_is_found(folder: Path) -> None:
    make(folder)
    in_log(folder, b"snap", put=(SNAP_KEY.pack(0, 4, 1), b"\x01" * 2999 + b"\x02"))
    assert findings(folder) == [(4, "snapshot")]
    in_log(folder, b"snap", delete=SNAP_KEY.pack(0, 4, 1))
    assert [finding.detail for finding in verify_folder(folder)] == ["snapshot chunk 1 of 3 is missing"]


def test_a_page_that_contradicts_its_parent_is_found_before_lmdb_reads_it(folder: Path) -> None:
    make(folder)
    assert check_pages(str(folder), "data.mdb") > 10
    data = (folder / "data.mdb").read_bytes()
    for found in re.finditer(
        re.escape(stamped(batch(2, 500), 60, 1)[:21]), data
    ):  # the batch is once in the tree of the log
        patch(folder, found.start() // PAGE * PAGE, b"\xff" * 16)
    with pytest.raises(DataFolderError, match="is not a tree page"):
        verify_folder(folder)


def test_a_file_with_large_batches_passes_the_page_walk(folder: Path) -> None:
    make(folder, batches=20, size_bytes=50_000)
    assert check_pages(str(folder), "data.mdb") > 20 * 50_000 // PAGE
    assert findings(folder) == []


def zero_leaf(folder: Path, keep_time: bool, base: int = 60) -> None:
    """Overwrites the leaf page that contains the batch at `base` with zeros.

    With `keep_time`, the modification time of the file stays unchanged, as after a fault of the disk.
    """
    before = (folder / "data.mdb").stat()
    data = (folder / "data.mdb").read_bytes()
    for found in re.finditer(re.escape(stamped(batch(2, 500), base, 1)[:21]), data):
        patch(folder, found.start() // PAGE * PAGE, bytes(PAGE))
    if keep_time:
        os.utime(folder / "data.mdb", ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_damaged_leaf_of_a_changed_file_is_refused_on_opening(folder: Path) -> None:
    make(folder)
    zero_leaf(folder, keep_time=False)
    error = refusal(folder)
    assert re.fullmatch(rf"damaged: page \d+ is not a tree page of level 1 \(.*\){REMEDY}", error.what)
    assert error.where == "data.mdb"


@pytest.mark.parametrize("clean", [True, False])
def test_leaves_are_read_on_opening_even_after_a_clean_close(folder: Path, clean: bool) -> None:
    make(folder)
    assert (folder / "kcore.lock").read_text().startswith("closed ")
    if not clean:
        (folder / "kcore.lock").write_text("12345\n")  # as kill -9 leaves it
    zero_leaf(folder, keep_time=True)
    assert "is not a tree page of level 1" in refusal(folder).what


def test_after_a_clean_close_leaves_are_read_for_a_limited_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder, batches=4_000)
    zero_leaf(folder, keep_time=True, base=6_000)
    path = str(folder)
    # The clock is read every 256 leaves; a negative limit is exceeded at the first reading.
    assert check_file(path, "data.mdb", max_ms=-1) < 0
    monkeypatch.setattr(data_folder, "MAX_MS_AFTER_CLEAN_CLOSE", -1)
    LmdbLogEngine(folder).close()  # no call has read the batch yet
    for look in (verify_folder, compact, lambda path: list(folder_events(path, Selection())), FolderSource):
        with pytest.raises(DataFolderError, match="is not a tree page of level 1"):
            look(folder)
    (folder / "kcore.lock").write_text("12345\n")  # as kill -9 leaves it
    assert "is not a tree page of level 1" in refusal(folder).what


def test_a_folder_in_use_does_not_look_cleanly_closed(folder: Path) -> None:
    make(folder)
    engine = LmdbLogEngine(folder)
    assert (folder / "kcore.lock").read_text() == f"{os.getpid()}\n"
    engine.close()
    assert (folder / "kcore.lock").read_text().startswith("closed ")


def leaf_of(folder: Path) -> int:
    """Returns the position of the current leaf page that has the batch at offset 60."""
    salvage = Salvage(str(folder))
    salvage.close()
    batches = salvage.log[0]
    return batches.positions[batches.bases.index(60)] // PAGE * PAGE


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (0, b"\x07\0\0\0\0\0\0\0", "is not a tree page of level 1"),
        (10, b"\x01\0", "is not a tree page of level 1"),
        (10, b"\x04\0", "is not a tree page of level 1"),
        (12, b"\x0f\0", "its bounds are 15 and "),
        (12, b"\xff\xff", "its bounds are 65535 and "),
        (14, b"\xff\xff", "its bounds are "),
        (16, b"\0\0", "node 0 lies outside"),
        (16, b"\xff\xff", "node 0 lies outside"),
    ],
)
def test_each_field_of_a_page_is_checked(folder: Path, at: int, value: bytes, what: str) -> None:
    make(folder)
    patch(folder, leaf_of(folder) + at, value)
    assert what in refusal(folder).what


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (0, b"\xff\xff\xff\x7f", "a value lies outside"),
        (4, b"\x02\0", "a node has flags 0x2"),
        (4, b"\x04\0", "a node has flags 0x4"),
        (4, b"\x01\0", "is needed, which lies outside"),
        (6, b"\xff\xff", "the key of node 1 lies outside"),
        (6, b"\0\0", "node 1 has a key of 0 bytes"),
        (8, b"\xff\xff\xff\xff", "out of order"),
        (8, b"\0\0\0\0\0\0\0\0\0\0\0\0", "the keys of nodes 0 and 1 are out of order"),
    ],
)
def test_each_field_of_a_node_is_checked(folder: Path, at: int, value: bytes, what: str) -> None:
    make(folder)
    leaf = leaf_of(folder)
    data = (folder / "data.mdb").read_bytes()
    (node,) = struct.unpack_from("=H", data, leaf + 18)
    patch(folder, leaf + node + at, value)
    assert what in refusal(folder).what


def test_a_page_that_lost_its_last_entry_is_found_by_the_count(folder: Path) -> None:
    make(folder)
    leaf = leaf_of(folder)
    (lower,) = struct.unpack_from("=H", (folder / "data.mdb").read_bytes(), leaf + 12)
    patch(folder, leaf + 12, struct.pack("=H", lower - 2))
    assert "database log has 59 entries where 60 are counted" in refusal(folder).what


def test_a_page_that_is_free_and_in_use_is_found(folder: Path) -> None:
    make(folder)
    leaf = leaf_of(folder) // PAGE
    data = (folder / "data.mdb").read_bytes()
    newest = max((0, 1), key=lambda page: struct.unpack_from("=Q", data, page * PAGE + 16 + 24 + 96 + 8)[0])
    (root,) = struct.unpack_from("=Q", data, newest * PAGE + 16 + 24 + 40)
    (node,) = struct.unpack_from("=H", data, root * PAGE + 16)
    list_of_pages = root * PAGE + node + 8 + 8
    assert struct.unpack_from("=Q", data, list_of_pages)[0] >= 1
    patch(folder, list_of_pages + 8, struct.pack("=Q", leaf))
    what = refusal(folder).what
    assert f"page {leaf} is in use, and free" in what or "in a list of free pages" in what


def test_the_reader_for_repairs_sees_the_same_pages(folder: Path) -> None:
    make(folder, batches=200, size_bytes=50)
    salvage = Salvage(str(folder))
    try:
        assert (salvage.damage, salvage.problems, salvage.scanned) == (None, [], False)
        assert sorted(salvage.log[0].bases) == list(range(0, 400, 2))
        assert set(salvage.log[0].tiers) == {Tier.LIVE}
        assert sorted(salvage.chunks) == [(0, 4, index) for index in range(3)]
    finally:
        salvage.close()


def test_the_reader_for_repairs_reads_the_pages_around_one_that_the_device_cannot_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device cannot read one page of the file. Without a root page, a scan of all pages finds the batches. It reads
    many pages at once, but loses only those few batches that lie near the unreadable page.
    """
    make(folder, batches=200, size_bytes=500)
    data = (folder / "data.mdb").read_bytes()
    lost = data.rindex(stamped(batch(2, 500), 200, 1)[:21]) // PAGE
    patch(folder, 0, bytes(2 * PAGE))
    assert len(bases_of(folder, monkeypatch, None)) == 200
    assert len(bases_of(folder, monkeypatch, lost)) > 180


def bases_of(folder: Path, monkeypatch: pytest.MonkeyPatch, bad_page: int | None) -> set[int]:
    """Returns the base offsets that a scan finds on a device that cannot read a page."""
    read = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        if bad_page is None:
            return read(fd, size, position)
        bad = bad_page * PAGE
        if bad <= position < bad + PAGE:
            raise OSError(errno.EIO, "injected")
        return read(fd, min(size, bad - position) if position < bad else size, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", pread)
        salvage = Salvage(str(folder), scan=True)
        try:
            return set(salvage.log[0].bases)
        finally:
            salvage.close()


def test_a_journal_that_the_device_cannot_read_makes_the_ends_of_all_partitions_doubtful(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(folder)
    leave_journal(folder, encoded([(0, 120, stamped(batch(2, 500), 120, 1))]))

    def fail(_: str) -> bytes:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(lmdb_salvage, "read_file", fail)
    salvage = Salvage(str(folder))
    try:
        assert salvage.problems == ["journal: injected"]
        assert salvage.doubts_all
    finally:
        salvage.close()
