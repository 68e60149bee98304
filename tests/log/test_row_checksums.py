"""Checksums of the rows of metadata: flipped bits, repairs, copies, and the migration of folders without checksums."""

from __future__ import annotations

import gc
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.log import DataFolderError, LmdbLogEngine, compact, verify_folder
from kcore.log.errors import FailureReason, LogError
from kcore.log.lmdb_copy import copy_folder
from kcore.log.lmdb_layout import partition_meta_key
from kcore.log.repair import repair_folder
from kcore.log.row_checksum import correct_row, has_checksum, with_checksum, without_checksum
from tests.faults.log_model import at_line
from tests.log.batches import AnyRecords, batch, contents, fill, key, stamped
from tests.log.journals import encoded, leave_journal
from tests.log.raw_rows import make_older, put_row, put_stored, put_version, rows
from tests.log.raw_rows import with_checksum as expected_row

PAGE = 4096
NODE_HEADER = 8
"""Size of the header of a row in a leaf page of LMDB."""


def make(folder: Path) -> None:
    """Makes a folder with a partition that has two epochs and a later log start, an empty partition, a dropped
    partition, and a named value.
    """
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    fill(log, engine, 6, leader_epoch=1)
    fill(log, engine, 6, leader_epoch=3)
    log.delete_before(2)
    empty = engine.open(key(1))
    fill(empty, engine, 3, leader_epoch=1)
    empty.delete_before(3)
    fill(engine.open(key(2)), engine, 1, leader_epoch=1)
    engine.put_meta("name", b"value")
    engine.commit()
    while engine.reclaim(100):
        pass
    engine.drop(key(2))
    engine.commit()
    engine.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "data"
    make(folder)
    return folder


@pytest.fixture
def copied(made: Path, folder: Path) -> Path:
    """A folder of its own for a test, with the content of `made`."""
    shutil.copytree(made, folder)
    return folder


def state(folder: Path) -> Any:
    """Returns everything that the rows of metadata of a folder determine."""
    engine = LmdbLogEngine(folder, "os", create=False)
    try:
        found = []
        for one in engine.partitions():
            log = engine.get(one)
            assert log is not None
            found.append((one, log._meta, log.end_offset, contents(log)))  # type: ignore[attr-defined]
        return found, engine.get_meta("name"), sorted(engine.meta_names("")), engine._next_number
    finally:
        engine.close()


def refusal(folder: Path) -> DataFolderError:
    with pytest.raises(DataFolderError) as refused:
        LmdbLogEngine(folder, "os").close()
    return refused.value


def places(data: bytes, name: bytes, stored: bytes) -> list[int]:
    """Returns the positions of a row in the data file, in the tree and on free pages."""
    row = name + stored
    return [at for at in range(len(data)) if data.startswith(row, at)]


def flips(folder: Path, name: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Yields the content of the data file with one flipped bit of a row, and the position of the bit.

    The position counts from the header of the row. The bit is also flipped in copies of the row on free pages.
    """
    stored = rows(folder)[name]
    data = (folder / "data.mdb").read_bytes()
    found = places(data, name, stored)
    assert found
    for bit in range(0, 8 * (NODE_HEADER + len(name) + len(stored)), step):
        damaged = bytearray(data)
        for at in found:
            damaged[at - NODE_HEADER + bit // 8] ^= 1 << bit % 8
        yield bit, bytes(damaged)


def test_each_row_but_the_format_version_ends_with_the_checksum_of_its_key_and_value(made: Path) -> None:
    stored = rows(made)
    assert stored.pop(b"format") == struct.pack(">I", 8)
    assert stored[b"format_copy"] == expected_row(b"format_copy", struct.pack(">I", 8))
    assert stored[b"user:name"] == expected_row(b"user:name", b"value")
    assert {name.partition(b":")[0] for name in stored} == {
        b"dropped", b"format_copy", b"next_partition_number", b"node_epoch", b"partition", b"user",
    }  # fmt: skip
    for name, value in stored.items():
        assert expected_row(name, value[:-4]) == value


def test_no_flipped_bit_of_a_row_is_read_as_other_content(made: Path, folder: Path) -> None:
    """Bits of the header, the key and the value of each row are flipped: each bit of a partition's row, and some bits
    of the other rows. The folder is refused, or the bit has no effect.
    """
    shutil.copytree(made, folder)
    sound = state(folder)  # the opening writes the row of the number of openings
    shutil.rmtree(folder)
    shutil.copytree(made, folder)
    file = folder / "data.mdb"
    size = file.stat().st_size
    effective = refused = 0
    for name in sorted(rows(folder)):
        for bit, damaged in flips(folder, name, 1 if name == partition_meta_key(key()) else 5):
            file.write_bytes(damaged)
            (folder / "kcore.lock").write_text("1\n")  # no clean close, so that all leaves are read
            try:
                assert state(folder) == sound, (name, bit)
                effective += 1
            except DataFolderError:
                refused += 1
        shutil.copyfile(made / "data.mdb", file)
    assert file.stat().st_size == size
    assert refused > 20 * effective


def test_a_flipped_bit_is_an_error_that_names_the_partition(copied: Path) -> None:
    name = partition_meta_key(key(1))
    stored = bytearray(rows(copied)[name])
    stored[10] ^= 4
    put_stored(copied, name, bytes(stored))
    error = refusal(copied)
    assert error.where == f"partition {key(1)}"
    assert error.what.startswith("damaged: the checksum of its metadata is wrong; `kcore log repair`")
    for look in (verify_folder, compact):
        with pytest.raises(DataFolderError, match="the checksum of its metadata is wrong") as refused:
            look(copied)
        assert refused.value.where == error.where


@pytest.mark.parametrize("name", [b"journam", b"uses:name", b"format_copx", b"x"])
def test_an_unknown_key_is_refused(copied: Path, name: bytes) -> None:
    put_row(copied, name, b"value")
    error = refusal(copied)
    assert (error.where, error.what.partition(";")[0]) == (f"metadata {name!r}", "damaged: the key is unknown")


def test_a_flipped_bit_in_the_key_of_the_journal_s_reference_loses_no_batch(copied: Path) -> None:
    """Without a check of keys, the journal would look as if it were not in use, and its batches would be lost."""
    sound = state(copied)
    leave_journal(copied, encoded([(0, 12, stamped(batch(), 12, 3))]))
    reference = rows(copied)[b"journal"]
    put_stored(copied, b"journal", None)
    put_stored(copied, b"jmurnal", reference)
    assert refusal(copied).what.startswith("damaged: the key is unknown")
    assert repair_folder(str(copied), AnyRecords).losses == []
    repaired = state(copied)
    assert repaired[0][0][2] == sound[0][0][2] + 1
    assert repaired[0][0][3][:-1] == sound[0][0][3]


# ---- the format version


@pytest.mark.parametrize("bit", range(32))
def test_a_flipped_bit_of_the_format_version_is_refused_and_repaired(copied: Path, bit: int) -> None:
    sound = state(copied)
    put_stored(copied, b"format", struct.pack(">I", 8 ^ 1 << bit))
    what = f"damaged: the format version {8 ^ 1 << bit} differs from its copy; `kcore log repair` keeps"
    assert refusal(copied).what.startswith(what)
    with pytest.raises(DataFolderError, match="differs from its copy"):
        copy_folder(str(copied), f"{copied}-copy")
    assert not os.path.exists(f"{copied}-copy")
    if bit % 8 == 1:
        done = repair_folder(str(copied), AnyRecords)
        assert (done.losses, done.changed, state(copied)) == ([], True, sound)


def test_a_missing_copy_of_the_format_version_is_refused(copied: Path) -> None:
    put_stored(copied, b"format_copy", None)
    assert refusal(copied).what.startswith("damaged: the copy of the format version is missing;")


# ---- repair


@pytest.mark.parametrize("partition", [0, 1])
def test_a_repair_restores_a_row_with_a_flipped_bit(copied: Path, partition: int) -> None:
    """Partition 0 has batches; partition 1 has none, so only its row has its next offset."""
    sound = state(copied)
    shutil.copyfile(copied / "data.mdb", copied.with_name("sound"))
    name = partition_meta_key(key(partition))
    stored = rows(copied)[name]
    first = 8 * NODE_HEADER
    for bit, damaged in flips(copied, name, 17):
        if bit < first or bit >= first + 8 * (len(name) + len(stored)):
            continue
        (copied / "data.mdb").write_bytes(damaged)
        done = repair_folder(str(copied), AnyRecords, copy_to=f"{copied}-{bit}")
        # A damaged key may be out of order, which a repair reports as damage to the page.
        assert {loss.kind for loss in done.losses} <= ({"page", "end"} if bit < first + 8 * len(name) else set())
        assert done.changed
        assert state(copied) == sound
        shutil.copyfile(copied.with_name("sound"), copied / "data.mdb")


def spoil(folder: Path, name: bytes, first: int, size: int) -> None:
    """Replaces bytes of a stored row."""
    stored = rows(folder)[name]
    put_stored(folder, name, stored[:first] + b"\xa5" * size + stored[first + size :])
    without_free_pages(folder)


def without_free_pages(folder: Path) -> None:
    """Overwrites all free pages of the data file with zeros. The tests make files without lost pages."""
    data = bytearray((folder / "data.mdb").read_bytes())
    live = live_pages(folder)
    for page in range(2, len(data) // PAGE):
        if page not in live:
            data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    (folder / "data.mdb").write_bytes(data)


def live_pages(folder: Path) -> set[int]:
    """Returns the pages of all trees, by walking them from the newest meta page."""
    data = (folder / "data.mdb").read_bytes()
    newest = max((0, 1), key=lambda page: struct.unpack_from("=Q", data, page * PAGE + 16 + 24 + 96 + 8)[0])
    at = newest * PAGE + 16 + 24
    todo = [struct.unpack_from("=Q", data, at + 48 * tree + 40)[0] for tree in (0, 1)]
    found: set[int] = set()
    while todo:
        page = todo.pop()
        if page == (1 << 64) - 1:
            continue
        found.add(page)
        base = page * PAGE
        flags, lower = struct.unpack_from("=HH", data, base + 10)
        for offset in struct.unpack_from(f"={(lower - 16) // 2}H", data, base + 16):
            low, high, node_flags, key_size = struct.unpack_from("=HHHH", data, base + offset)
            value = base + offset + 8 + key_size
            if flags & 1:
                todo.append(low | high << 16 | node_flags << 32)
            elif node_flags & 2:
                todo.append(struct.unpack_from("=Q", data, value + 40)[0])
            elif node_flags & 1:
                first = struct.unpack_from("=Q", data, value)[0]
                found.update(range(first, first + ((low | high << 16) + 15) // PAGE + 1))
    return found


@pytest.mark.parametrize(
    ("first", "size", "detail"),
    [
        (4, 3, "the repair makes it again from the batches"),
        (12, 8, "the repair makes it again from the batches"),
        (0, 4, "the repair makes it again from the only batches of an unknown partition"),
        (0, 40, "the repair makes it again from the only batches of an unknown partition"),
    ],
)
def test_a_repair_makes_a_damaged_row_again_from_the_batches(copied: Path, first: int, size: int, detail: str) -> None:
    sound = state(copied)
    spoil(copied, partition_meta_key(key()), first, size)
    assert refusal(copied).where == f"partition {key()}"
    done = repair_folder(str(copied), AnyRecords)
    assert [(loss.partition, loss.kind, loss.detail) for loss in done.losses] == [
        (key(), "metadata", f"the checksum of its metadata is wrong; {detail}")
    ]
    repaired = state(copied)
    assert verify_folder(copied) == []
    assert (repaired[0][1:], repaired[1:]) == (sound[0][1:], sound[1:])
    (_, meta, end, stored), (_, sound_meta, sound_end, sound_stored) = repaired[0][0], sound[0][0]
    assert (end, stored[-len(sound_stored) :]) == (sound_end, sound_stored)
    assert meta.number == sound_meta.number
    assert [entry.epoch for entry in meta.epochs] == [1, 3]


def test_a_repair_uses_an_older_copy_of_a_damaged_row(copied: Path) -> None:
    """Partition 1 has no batches. A free page still has its row, which also contains its next offset."""
    sound = state(copied)
    LmdbLogEngine(copied, "os").close()  # writes the row to another page, and leaves a copy
    name = partition_meta_key(key(1))
    stored = rows(copied)[name]
    data = bytearray((copied / "data.mdb").read_bytes())
    live = live_pages(copied)
    (at,) = [at for at in places(data, name, stored) if at // PAGE in live]
    data[at + len(name) + 4 : at + len(name) + 12] = b"\xa5" * 8
    (copied / "data.mdb").write_bytes(data)
    done = repair_folder(str(copied), AnyRecords)
    assert [(loss.partition, loss.detail) for loss in done.losses] == [
        (key(1), "the checksum of its metadata is wrong; the repair uses an older copy")
    ]
    assert state(copied)[:3] == sound[:3]


def test_a_row_that_cannot_be_restored_is_reported(copied: Path) -> None:
    sound = state(copied)
    spoil(copied, partition_meta_key(key(1)), 0, 12)
    done = repair_folder(str(copied), AnyRecords)
    assert [(loss.partition, loss.detail) for loss in done.losses] == [
        (
            key(1),
            "the checksum of its metadata is wrong; its batches, if it had any, cannot be determined; new records may "
            "get their offsets",
        )
    ]
    repaired = state(copied)
    assert repaired[0] == sound[0][:1]
    assert repaired[1] == sound[1]


@pytest.mark.parametrize("name", [b"node_epoch", b"next_partition_number", b"user:name"])
def test_other_damaged_rows_are_reported_or_counted_again(copied: Path, name: bytes) -> None:
    sound = state(copied)
    stored = rows(copied)[name]
    put_stored(copied, name, bytes(len(stored)))
    without_free_pages(copied)
    assert refusal(copied).what.startswith("damaged: the checksum")
    done = repair_folder(str(copied), AnyRecords)
    shown = "'name'" if name.startswith(b"user") else repr(name)
    assert [loss.detail for loss in done.losses] == [f"metadata {shown}: the checksum is wrong"]
    repaired = state(copied)
    assert repaired[0] == sound[0]
    assert repaired[1] == (None if name.startswith(b"user") else b"value")


def test_a_row_is_corrected_only_if_one_bit_differs() -> None:
    name, value = b"user:name", bytes(range(60))
    stored = with_checksum(name, value)
    assert stored == expected_row(name, value)
    assert has_checksum(name, stored)
    assert without_checksum(stored) == value
    row = name + stored
    for bit in range(8 * len(row)):
        damaged = bytearray(row)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not has_checksum(bytes(damaged[:9]), damaged[9:])
        assert correct_row(bytes(damaged[:9]), bytes(damaged[9:])) == (name, value)
        damaged[(bit // 8 + 5) % len(row)] ^= 1
        damaged[(bit // 8 + 9) % len(row)] ^= 1
        assert correct_row(bytes(damaged[:9]), bytes(damaged[9:])) is None
    assert correct_row(name, stored + b"rest of the page") == (name, value)
    assert correct_row(name, stored[:-1]) is None
    assert not has_checksum(name, b"")


# ---- while the folder is open


def test_a_damaged_named_value_is_an_error_of_the_open_log(copied: Path) -> None:
    engine = LmdbLogEngine(copied, "os")
    environment = engine._storage._environment  # type: ignore[attr-defined]
    with environment.env.begin(write=True) as txn:
        txn.put(b"user:name", b"other" + bytes(4), db=environment.meta_db)
    with pytest.raises(LogError, match=r"metadata 'name': its checksum in data\.mdb is wrong; stop kcore") as refused:
        engine.get_meta("name")
    assert refused.value.reason == FailureReason.CORRUPT
    engine.put_meta("name", b"new")
    engine.commit()
    assert engine.get_meta("name") == b"new"
    engine.close()


# ---- copies


def test_a_copy_of_a_damaged_row_is_refused_by_its_opening(copied: Path, tmp_path: Path) -> None:
    """Like a damaged batch, a damaged row is copied, and the check of the copy finds it."""
    name = partition_meta_key(key())
    put_stored(copied, name, rows(copied)[name][:-1] + b"x")
    copy_folder(str(copied), str(tmp_path / "copy"))
    assert refusal(tmp_path / "copy").where == f"partition {key()}"


def test_a_folder_whose_reference_to_the_journal_is_damaged_is_not_copied(copied: Path, tmp_path: Path) -> None:
    leave_journal(copied, encoded([(0, 12, stamped(batch(), 12, 3))]))
    put_stored(copied, b"journal", bytes(24))
    with pytest.raises(DataFolderError, match="its checksum is wrong") as refused:
        copy_folder(str(copied), str(tmp_path / "copy"))
    assert refused.value.where == "metadata b'journal'"
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("version", [6, 7])
def test_a_folder_without_checksums_is_copied_with_its_journal(copied: Path, tmp_path: Path, version: int) -> None:
    make_older(copied, version)
    leave_journal(copied, encoded([(0, 12, stamped(batch(), 12, 3))]))
    copy_folder(str(copied), str(tmp_path / "copy"))
    assert rows(tmp_path / "copy") == rows(copied)
    assert state(tmp_path / "copy") == state(copied)


# ---- migration


def test_the_migration_adds_the_checksums_and_keeps_the_content(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound = state(copied)
    make_older(copied, 7)
    assert b"format_copy" not in rows(copied)
    assert state(copied) == sound
    assert caplog.messages == [
        f"log {copied}: migrated from format version 7 to 8; older versions of kcore refuse the folder from now on"
    ]
    stored = rows(copied)
    assert stored.pop(b"format") == struct.pack(">I", 8)
    assert all(expected_row(name, value[:-4]) == value for name, value in stored.items())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised in a method `__del__`
@pytest.mark.parametrize("step", [11, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_exception_at_any_line_of_a_migration_leaves_the_folder_usable(
    error: type[BaseException], step: int, copied: Path, tmp_path: Path
) -> None:
    sound = state(copied)
    make_older(copied, 7)
    leave_journal(copied, encoded([(0, 12, stamped(batch(), 12, 3))]))
    older = rows(copied)
    file = (copied / "data.mdb").read_bytes()
    nth = missed = 0
    while missed < 2:
        nth += step
        (copied / "data.mdb").write_bytes(file)
        try:
            with at_line(nth, error()):
                LmdbLogEngine(copied, "os").close()
            missed += 1
        except BaseException as raised:
            assert isinstance(raised, error)  # noqa: PT017
            missed = 0
        gc.collect()  # the interrupted close of an engine ends when the engine is collected
        found = rows(copied)
        if found != older:
            assert found[b"format"] == struct.pack(">I", 8)
            assert all(expected_row(name, found[name][:-4]) == found[name] for name in found.keys() - {b"format"})
    assert nth > 200
    repaired = state(copied)
    assert (repaired[0][0][2], repaired[0][1:], repaired[1:]) == (13, sound[0][1:], sound[1:])


def test_a_killed_migration_is_repeated(copied: Path) -> None:
    """A child process is killed before each LMDB commit of the opening, and before the first later write."""
    sound = state(copied)
    make_older(copied, 7)
    older = rows(copied)
    file = (copied / "data.mdb").read_bytes()
    for nth in range(1, 400, 12):
        (copied / "data.mdb").write_bytes(file)
        child = os.fork()
        if child == 0:
            try:
                with at_line(nth, SystemExit()):
                    LmdbLogEngine(copied, "os").close()
            finally:
                os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        found = rows(copied)
        assert found == older or found[b"format"] == struct.pack(">I", 8)
        assert state(copied) == sound


def test_a_damaged_row_of_an_older_version_is_refused_and_the_folder_stays_unchanged(copied: Path) -> None:
    make_older(copied, 7)
    name = partition_meta_key(key())
    put_stored(copied, name, rows(copied)[name][:-1])
    older = rows(copied)
    assert refusal(copied).where == f"partition {key()}"
    assert rows(copied) == older


def test_a_repair_keeps_the_format_version_of_an_older_folder(copied: Path) -> None:
    sound = state(copied)
    make_older(copied, 7)
    put_stored(copied, b"node_epoch", b"\x01")
    done = repair_folder(str(copied), AnyRecords)
    assert (done.losses, done.changed) == ([], True)
    assert (rows(copied)[b"format"], b"format_copy" in rows(copied)) == (struct.pack(">I", 7), False)
    assert state(copied) == sound


def test_a_version_that_is_newer_in_both_rows_is_newer(copied: Path) -> None:
    put_version(copied, 10)
    assert refusal(copied).what.startswith("format version 10 is newer than 8")
