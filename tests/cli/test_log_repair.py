"""`kcore log repair`: each kind of damage, the reported losses, and the folder, which works afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import kcore
from kcore.broker.metadata.names import METADATA_TOPIC_ID
from kcore.log import DataFolderError, LmdbLogEngine, PartitionKey, PartitionLog, verify_folder
from kcore.log import repair as repairs
from kcore.log.lmdb_layout import (
    DROPPED_PREFIX,
    FORMAT_COPY_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    LOG_DB,
    LOG_KEY,
    META_DB,
    NEXT_NUMBER_KEY,
    NODE_EPOCH_KEY,
    PARTITION_PREFIX,
    SNAP_DB,
    SNAP_KEY,
)
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from tests.cli.conftest import folder_to_repair
from tests.cli.test_log_verify import change, found, raw, records
from tests.kit import QUICK, batch, commit, committed, produce, producer_id
from tests.log.damaged_folders import served_values
from tests.log.journals import encoded, leave_journal
from tests.log.raw_rows import put_row, put_version

Run = Callable[..., Any]
SETTINGS = {**QUICK, "offsets.topic.num.partitions": "1"}
VALUES = [(0, b"one".hex()), (1, b"two".hex()), (2, b"three".hex())]
OFFSETS = {("lines", 0): 2, ("lines", 1): 0}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with folder_to_repair(tmp_path / "data", SETTINGS) as path:
        yield path


def repair(run: Run, folder: Path, *options: str) -> list[dict[str, Any]]:
    """Repairs the folder, checks that it has no findings and that the damaged file is kept, and returns the losses."""
    damaged = (folder / "data.mdb").read_bytes()
    journal = (folder / "journal").read_bytes() if (folder / "journal").exists() else None
    ran = run("log", "repair", folder, "--yes", "--format", "json", *options)
    assert ran.status == 0, ran.err
    *losses, conclusion = ran.rows
    assert conclusion == {"damaged": True, "repaired": True, "losses": len(losses), "copy": conclusion["copy"]}
    assert Path(conclusion["copy"], "data.mdb").read_bytes() == damaged
    copied = Path(conclusion["copy"], "journal")
    assert (copied.read_bytes() if copied.exists() else None) == journal
    assert found(run, folder) == []
    again = run("log", "repair", folder, "--yes", "--format", "json")
    assert (again.status, again.rows) == (0, [{"damaged": False, "repaired": False, "losses": 0, "copy": None}])
    return losses


def served(folder: Path) -> tuple[list[tuple[int, str]], dict[tuple[str, int], int]]:
    """Returns the topic's values and the group's offsets, read from a server on the folder."""
    with kcore.open(folder, config=SETTINGS, create=False) as engine:
        return served_values(engine, "lines"), committed(engine, "simple")


def test_a_file_that_lmdb_cannot_open_is_rebuilt(run: Run, folder: Path) -> None:
    """Both meta pages have damaged flags, so LMDB cannot find the trees. The repair does not need these flags."""
    with (folder / "data.mdb").open("r+b") as file:
        for page in (0, 1):
            file.seek(page * 4096 + 92)
            file.write(b"\xff\xff")
    with pytest.raises(lmdb.Error), lmdb.open(str(folder), max_dbs=8, readonly=True, lock=False) as env:
        env.open_db(LOG_DB, create=False)
    assert repair(run, folder) == []
    assert served(folder) == (VALUES, OFFSETS)


def edit(folder: Path, database: bytes, *changes: tuple[bytes, bytes | None]) -> None:
    with lmdb.open(str(folder), max_dbs=8, map_size=1 << 30) as env:
        db = env.open_db(database)
        with env.begin(write=True, db=db) as txn:
            for key, value in changes:
                if value is None:
                    assert txn.delete(key)
                else:
                    txn.put(key, value)


def flip(folder: Path, number: int, *bases: int) -> None:
    """Flips a bit in stored batches, and in their copies on older pages."""
    data = bytearray((folder / "data.mdb").read_bytes())
    with lmdb.open(str(folder), max_dbs=8, readonly=True) as env, env.begin() as txn:
        db = env.open_db(LOG_DB, txn=txn, create=False)
        batches = [bytes(txn.get(LOG_KEY.pack(number, base), db=db)) for base in bases]
    for one in batches:
        while (at := data.find(one)) >= 0:
            data[at + 40] ^= 1
    (folder / "data.mdb").write_bytes(data)


def append_ten(log: PartitionLog) -> None:
    for number in range(10):
        log.append(records((b"k%d" % number, b"v%d" % number)), 5)


def test_a_sound_folder_is_left_alone(run: Run, folder: Path) -> None:
    before = (folder / "data.mdb").read_bytes()
    ran = run("log", "repair", folder, "--yes")
    assert (ran.status, ran.out) == (0, "the folder needs no repair\n")
    assert (folder / "data.mdb").read_bytes() == before
    assert sorted(os.listdir(folder.parent)) == ["data"]


def test_a_gap_keeps_its_offsets(run: Run, folder: Path) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    (loss,) = repair(run, folder)
    assert loss == {
        "partition": "lines-0",
        "from_offset": 6,
        "to_offset": 7,
        "records": None,
        "loss": "gap",
        "detail": "no batch holds these offsets",
        "contents": [],
    }
    values, offsets = served(folder)
    assert values == VALUES + [(3 + n, (b"v%d" % n).hex()) for n in range(10) if n != 3]
    assert offsets == OFFSETS
    with kcore.open(folder, config=SETTINGS) as engine:
        response = engine.send(produce("lines", batch([b"new"])), 9).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, 13)


def test_a_damaged_last_batch_keeps_the_end(run: Run, folder: Path) -> None:
    number = change(folder, "lines", append_ten)
    before = raw(folder, number, 12, bytes(80))
    for _ in range(4):  # LMDB reuses the pages of the valid copies
        raw(folder, number, 12, before[:-3] + bytes([before[-3] ^ 1]) + before[-2:])
    with pytest.raises(
        DataFolderError, match=r"the last batch: the header has CRC .*; `kcore log repair` keeps what can be read"
    ):
        LmdbLogEngine(folder)
    (loss,) = repair(run, folder)
    assert (loss["from_offset"], loss["to_offset"], loss["records"], loss["loss"]) == (12, 13, 1, "crc")
    assert loss["contents"] == ["b'k9'"]
    with kcore.open(folder, config=SETTINGS) as engine:
        response = engine.send(produce("lines", batch([b"new"])), 9).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, 13)


def test_refused_opens_and_verify_preserve_the_pages_for_a_repair(run: Run, folder: Path) -> None:
    """LMDB keeps older copies of a damaged page until a commit reuses them, so a refused open must not commit."""
    number = change(folder, "lines", append_ten)
    before = raw(folder, number, 12, bytes(80))
    raw(folder, number, 12, before[:-3] + bytes([before[-3] ^ 1]) + before[-2:])
    damaged = (folder / "data.mdb").read_bytes()
    for _ in range(4):
        with pytest.raises(DataFolderError, match="the last batch: the header has CRC"):
            LmdbLogEngine(folder)
        with pytest.raises(DataFolderError, match="the last batch: the header has CRC"):
            verify_folder(folder)
    assert (folder / "data.mdb").read_bytes() == damaged
    assert repair(run, folder) == []


def test_records_that_a_coordinator_cannot_decode_are_skipped(
    run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offset = []
    change(
        folder,
        CONSUMER_OFFSETS,
        lambda log: offset.append(log.append(records((b"\x00\x01\x00\x09short", b"\x00\x01")), 5)),
    )
    with kcore.open(folder, config=SETTINGS) as engine:
        assert engine.send(commit("simple", {("lines", 0): 3}), 9).topics[0].partitions[0].error_code == 16
    assert "to skip damaged records, stop the server and run `kcore log repair`" in caplog.text
    assert f"the record at offset {offset[0]} cannot be decoded" in caplog.text
    dumped = run("log", "dump", folder, "--topic", CONSUMER_OFFSETS, "--format", "json")
    assert [(row["offset"], row["type"]) for row in dumped.rows if row["offset"] == offset[0]] == [
        (offset[0], "unreadable")
    ]
    (loss,) = repair(run, folder)
    assert (loss["partition"], loss["from_offset"], loss["to_offset"]) == (
        "__consumer_offsets-0",
        offset[0],
        offset[0] + 1,
    )
    assert (loss["loss"], loss["records"]) == ("record", 1)
    assert served(folder) == (VALUES, OFFSETS)


def test_records_that_a_coordinator_cannot_replay_are_skipped(run: Run, folder: Path) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="simple", member_id="m").encode_key()
    change(folder, CONSUMER_OFFSETS, lambda log: log.append(records((key, b"\x00\x00" + bytes(30))), 5))
    losses = repair(run, folder)
    assert [loss["loss"] for loss in losses] == ["record"]
    assert served(folder) == (VALUES, OFFSETS)


@pytest.mark.parametrize("database", [LOG_DB, SNAP_DB])
def test_orphans_are_refused_and_removed(run: Run, folder: Path, database: bytes) -> None:
    key, what = (
        (LOG_KEY.pack(900, 4), "batches") if database == LOG_DB else (SNAP_KEY.pack(900, 4, 0), "snapshot chunks")
    )
    edit(folder, database, (key, bytes(records((b"k", b"v")))))
    with pytest.raises(DataFolderError) as refused:
        LmdbLogEngine(folder)
    assert str(refused.value) == (
        f"{folder}: data.mdb: damaged: {what} of unknown partition number 900: `kcore log verify` shows more; "
        "`kcore log repair` keeps what can be read"
    )
    assert found(run, folder) == [(None, None, "orphan")]
    (loss,) = repair(run, folder)
    assert (loss["loss"], loss["detail"]) == ("orphan", f"{what} of unknown partition number 900")
    assert served(folder) == (VALUES, OFFSETS)


def test_a_journal_with_an_unknown_number_is_refused(run: Run, folder: Path) -> None:
    stray = bytes(records((b"k", b"v")))
    leave_journal(folder, encoded([(901, 0, stray)]))
    with pytest.raises(DataFolderError, match="batches of unknown partition number 901"):
        LmdbLogEngine(folder)
    (loss,) = repair(run, folder)
    assert (loss["loss"], loss["detail"], loss["records"]) == ("orphan", "batches of unknown partition number 901", 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (FORMAT_KEY, None),
        (FORMAT_KEY, b""),
        (FORMAT_KEY, b"\x03"),
        (FORMAT_KEY, bytes(4)),
        (FORMAT_KEY, b"\x40\0\0\x03"),
        (NODE_EPOCH_KEY, None),
        (FORMAT_COPY_KEY, None),
        (FORMAT_COPY_KEY, b"\0\0\0\7"),
        (NODE_EPOCH_KEY, b"\0\0\0\1"),
        (NEXT_NUMBER_KEY, None),
        (NEXT_NUMBER_KEY, b"\0\0\0"),
        (NEXT_NUMBER_KEY, bytes(4)),
        (DROPPED_PREFIX + b"\0\1", b""),
        (DROPPED_PREFIX + bytes(5), b""),
    ],
)
def test_damaged_versions_and_counters_are_replaced(run: Run, folder: Path, key: bytes, value: bytes | None) -> None:
    put_row(folder, key, value)
    with pytest.raises(DataFolderError):
        LmdbLogEngine(folder)
    assert repair(run, folder) == []
    assert served(folder) == (VALUES, OFFSETS)


def test_a_folder_of_a_newer_version_is_not_repaired(run: Run, folder: Path) -> None:
    put_version(folder, FORMAT_VERSION + 1)
    ran = run("log", "repair", folder, "--yes")
    assert (ran.status, "is newer than this kcore supports (8); use a newer kcore" in ran.err) == (1, True)


@pytest.mark.parametrize("database", [LOG_DB, META_DB, SNAP_DB])
def test_a_missing_database_is_made_again(run: Run, folder: Path, database: bytes) -> None:
    before = served(folder)
    with lmdb.open(str(folder), max_dbs=8) as env:
        db = env.open_db(database)
        with env.begin(write=True) as txn:
            txn.drop(db)
    with pytest.raises(DataFolderError, match="not a file of kcore"):
        LmdbLogEngine(folder)
    losses = repair(run, folder)
    assert [loss["detail"] for loss in losses if loss["loss"] == "page"] == (
        [] if database == SNAP_DB else [f"database {database.decode()} is missing"]
    )
    if database == SNAP_DB:
        assert (losses, served(folder)) == ([], before)
    else:
        LmdbLogEngine(folder).close()


def test_topics_are_restored_when_their_metadata_is_lost(run: Run, folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.get(PartitionKey(METADATA_TOPIC_ID, 0))
    assert log is not None
    number, bases = log._number, [base for base, _ in log.batches()]  # type: ignore[attr-defined]
    engine.close()
    flip(folder, number, *bases)
    losses = repair(run, folder)
    details = [loss["detail"] for loss in losses if loss["loss"] == "metadata"]
    assert details == [
        "the topic's metadata is lost: the repair creates the topic again as '__consumer_offsets' with 1 partitions",
        "the topic's metadata is lost: the repair creates the topic again as 'lines' with 2 partitions",
    ]
    assert served(folder) == (VALUES, OFFSETS)


def test_producer_ids_are_not_allocated_twice_when_their_count_is_lost(run: Run, folder: Path) -> None:
    with kcore.open(folder, config=SETTINGS) as engine:
        used = engine.send(producer_id()).producer_id
        engine.send(produce("lines", batch([b"mine"], producer_id=used, epoch=0, sequence=0)), 9)
    engine_ = LmdbLogEngine(folder)
    log = engine_.get(PartitionKey(METADATA_TOPIC_ID, 0))
    assert log is not None
    number, (*_, base) = log._number, [base for base, _ in log.batches()]  # type: ignore[attr-defined]
    engine_.close()
    flip(folder, number, base)
    assert [loss["from_offset"] for loss in repair(run, folder)] == [base]
    with kcore.open(folder, config=SETTINGS) as engine:
        assert engine.send(producer_id()).producer_id > used


def test_lost_partition_metadata_is_restored_from_older_pages(run: Run, folder: Path) -> None:
    for _ in range(3):
        LmdbLogEngine(folder).close()  # each open writes the metadata to another page
    data = (folder / "data.mdb").read_bytes()
    with lmdb.open(str(folder), max_dbs=8, readonly=True) as env, env.begin() as txn:
        db = env.open_db(META_DB, txn=txn, create=False)
        names = [
            bytes(name) for name in txn.cursor(db).iternext(values=False) if bytes(name).startswith(PARTITION_PREFIX)
        ]
    live = max(at for at in range(0, len(data), 4096) if all(name in data[at : at + 4096] for name in names))
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(live)
        file.write(bytes(4096))
    with pytest.raises(DataFolderError, match="is not a tree page") as refused:
        LmdbLogEngine(folder)
    assert refused.value.where == "data.mdb"
    losses = repair(run, folder)
    assert {loss["loss"] for loss in losses} <= {"page", "end"}
    assert served(folder) == (VALUES, OFFSETS)


def test_a_dry_run_changes_nothing_and_reports_the_same(run: Run, folder: Path) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    before = (folder / "data.mdb").read_bytes()
    ran = run("log", "repair", folder, "--dry-run", "--format", "json")
    *losses, conclusion = ran.rows
    assert (ran.status, conclusion) == (1, {"damaged": True, "repaired": False, "losses": 1, "copy": None})
    assert (folder / "data.mdb").read_bytes() == before
    assert repair(run, folder) == losses


def test_text_names_the_losses_and_the_damaged_file(run: Run, folder: Path) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    copy = folder.parent / "kept"
    ran = run("log", "repair", folder, "--yes", "--copy-to", copy)
    assert ran.out.splitlines() == [
        "PARTITION  FROM-OFFSET  TO-OFFSET  RECORDS  LOSS  DETAIL                        CONTENTS",
        "lines-0    6            7          -        gap   no batch holds these offsets  -",
        f"repaired; the damaged file is kept in {copy}",
    ]


def test_an_unconfirmed_repair_changes_nothing(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    before = (folder / "data.mdb").read_bytes()
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115
    ran = run("log", "repair", folder)
    assert (ran.status, "the repair was not confirmed: use --yes" in ran.err) == (1, True)
    assert (folder / "data.mdb").read_bytes() == before


def test_without_disk_space_for_the_copy_the_repair_does_not_start(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    before = (folder / "data.mdb").read_bytes()

    class Disk:
        f_bavail = 10
        f_frsize = 4096

    monkeypatch.setattr("kcore.log.repair.os.statvfs", lambda place: Disk())
    ran = run("log", "repair", folder, "--yes")
    assert (ran.status, "has 40960 bytes free, and the repair needs " in ran.err) == (1, True)
    assert sorted(os.listdir(folder.parent)) == ["data"]
    assert (folder / "data.mdb").read_bytes() == before


def test_a_copy_is_never_overwritten(run: Run, folder: Path) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    ran = run("log", "repair", folder, "--yes", "--copy-to", folder.parent)
    assert (ran.status, "already exists" in ran.err) == (1, True)


def test_a_folder_in_use_is_refused(run: Run, folder: Path) -> None:
    with kcore.open(folder, config=SETTINGS):
        ran = run("log", "repair", folder, "--yes")
    assert (ran.status, "in use by this process" in ran.err) == (1, True)


CRASH = """
import os, sys
import kcore.log.repair as repair
from kcore.cli import main

def crash(*arguments):
    os._exit(9)

step, folder = sys.argv[1:]
if step == "after the rename":
    replace = repair.os.replace
    repair.os.replace = lambda old, new: crash(replace(old, new))
else:
    setattr(repair if step.startswith("_") else repair.os, step, crash)
main(["log", "repair", folder, "--yes"])
"""


@pytest.mark.parametrize("step", ["_copy_damaged", "_build", "_check", "_swap", "replace", "after the rename"])
def test_a_crash_leaves_the_old_state_or_the_repaired_one(run: Run, folder: Path, step: str) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    before = (folder / "data.mdb").read_bytes()
    ran = subprocess.run(
        [sys.executable, "-c", CRASH, step, str(folder)], capture_output=True, timeout=120, check=False
    )
    assert ran.returncode == 9, ran.stderr
    if step == "after the rename":
        assert found(run, folder) == []
    else:
        assert (folder / "data.mdb").read_bytes() == before
        assert [loss["loss"] for loss in repair(run, folder)] == ["gap"]
    assert len(served(folder)[0]) == 12
    assert "data.mdb.repair" not in os.listdir(folder)


@pytest.mark.parametrize("step", ["_copy_readable", "_build", "_check", "replace", "after the rename"])
def test_a_failed_repair_leaves_a_copy_only_if_it_replaced_the_file(
    run: Run, folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair that fails before it replaces the file removes its copy of the folder. A repair that fails later leaves
    the copy, because only the copy contains the damaged file.
    """
    raw(folder, change(folder, "lines", append_ten), 6, None)
    before = (folder / "data.mdb").read_bytes()
    replaced = step == "after the rename"

    def fail(*arguments: Any) -> None:
        if replaced:
            os.rename(*arguments)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        owner = repairs.os if step in ("replace", "after the rename") else repairs
        patch.setattr(owner, "replace" if replaced else step, fail)
        ran = run("log", "repair", folder, "--yes")
    assert (ran.status, "Input/output error" in ran.err) == (1, True)
    assert sorted(os.listdir(folder.parent)) == (["data", "data.damaged-1"] if replaced else ["data"])
    kept = folder.parent / "data.damaged-1" if replaced else folder
    assert (kept / "data.mdb").read_bytes() == before
