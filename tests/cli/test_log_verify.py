"""`kcore log verify` and `kcore log compact`: findings and their texts, and the output for a folder without damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

import kcore
from kcore.broker.metadata.names import CLUSTER_METADATA, METADATA_TOPIC_ID
from kcore.clock import ManualClock
from kcore.log import LmdbLogEngine, PartitionKey, PartitionLog
from kcore.log.lmdb_layout import LOG_DB, LOG_KEY
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.protocol.records.metadata import TopicRecord, decode_metadata_record
from kcore_ext.batch import BatchBuilder, build_control_batch, iter_records
from tests.cli.conftest import populate
from tests.kit import QUICK

Run = Callable[..., Any]
SETTINGS = {**QUICK, "offsets.topic.num.partitions": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with kcore.open(path, config=SETTINGS) as engine:
        populate(engine)
    return path


def topic_id(engine: LmdbLogEngine, name: str) -> bytes:
    log = engine.get(PartitionKey(METADATA_TOPIC_ID, 0))
    assert log is not None
    for _, batch in log.batches():
        for record in iter_records(batch):
            fact = decode_metadata_record(record.value or b"")
            if isinstance(fact, TopicRecord) and fact.name == name:
                return fact.topic_id
    raise AssertionError(name)


def change(folder: Path, topic: str, write: Callable[[PartitionLog], None]) -> int:
    """Calls `write` on the log of partition 0 of a topic, and commits the change. Returns the number of the partition
    in LMDB.
    """
    engine = LmdbLogEngine(folder)
    log = engine.get(PartitionKey(topic_id(engine, topic), 0))
    assert log is not None
    write(log)
    engine.commit()
    number = log._number  # type: ignore[attr-defined]
    engine.close()
    return int(number)


def records(*pairs: tuple[bytes | None, bytes | None], **more: Any) -> bytearray:
    builder = BatchBuilder(10_000, base_timestamp_ms=1_000, **more)
    for key, value in pairs:
        assert builder.append(1_000, key, value)
    return builder.build_bytearray()


def raw(folder: Path, number: int, base: int, data: bytes | None) -> bytes:
    """Replaces the stored bytes of a batch without the log engine. Returns the previous bytes.

    `data` None deletes the batch, and its copies in the pages and the journal that are not in use.
    """
    with lmdb.open(str(folder), max_dbs=8, map_size=1 << 30) as env:
        db = env.open_db(LOG_DB)
        with env.begin(write=True) as txn:
            key = LOG_KEY.pack(number, base)
            before = bytes(txn.get(key, db=db))
            if data is None:
                txn.delete(key, db=db)
            else:
                txn.put(key, data, db=db)
    for name in ("data.mdb", "journal") if data is None else ():
        if (folder / name).exists():
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content.replace(before, bytes(len(before))))
    return before


def found(run: Run, folder: Path) -> list[tuple[str, int, str]]:
    """Returns the findings; checks the exit status."""
    ran = run("log", "verify", folder, "--format", "json")
    assert ran.status == (1 if ran.rows else 0)
    return [(row["partition"], row["offset"], row["finding"]) for row in ran.rows]


def test_a_sound_folder_has_no_findings(run: Run, folder: Path) -> None:
    ran = run("log", "verify", folder)
    assert (ran.status, ran.out) == (0, "no findings in 4 partitions\n")
    assert found(run, folder) == []


def test_a_flipped_bit_is_reported_with_topic_and_offset(run: Run, folder: Path) -> None:
    number = change(folder, "lines", lambda log: [log.append(records((b"k", b"v")), 5) for _ in range(4)] and None)
    before = raw(folder, number, 4, bytes(100))
    raw(folder, number, 4, before[:-1] + bytes([before[-1] ^ 1]))
    ran = run("log", "verify", folder)
    assert ran.status == 1
    assert ran.out.splitlines()[0].split() == ["PARTITION", "OFFSET", "FINDING", "DETAIL"]
    assert ran.out.splitlines()[1].split()[:3] == ["lines-0", "4", "crc"]
    assert found(run, folder) == [("lines-0", 4, "crc")]


def test_a_missing_batch_is_a_gap_unless_compaction_may_have_removed_it(run: Run, folder: Path) -> None:
    def write(log: PartitionLog) -> None:
        for number in range(5):
            log.append(records((b"k%d" % number, b"v")), 5)

    number = change(folder, "lines", write)
    raw(folder, number, 5, None)
    assert found(run, folder) == [("lines-0", 5, "gap")]
    engine = LmdbLogEngine(folder)
    key = PartitionKey(topic_id(engine, "lines"), 0)
    log = engine.get(key)
    assert log is not None
    log.rewrite({}, 7)
    engine.commit()
    engine.close()
    assert [one for one in found(run, folder) if one[2] == "gap"] == []


def test_a_duplicate_key_below_the_compaction_point_is_reported(run: Run, folder: Path) -> None:
    change(folder, "lines", lambda log: [log.append(records((b"same", b"v")), 5) for _ in range(4)] and None)
    change(folder, "lines", lambda log: log.rewrite({}, 5))
    findings = found(run, folder)
    assert ("lines-0", 3, "compaction") in findings
    assert {one[2] for one in findings} == {"compaction"}


@pytest.mark.parametrize("ended", [False, True])
def test_a_transaction_without_an_end_below_the_compaction_point_is_reported(
    run: Run, folder: Path, ended: bool
) -> None:
    def write(log: PartitionLog) -> None:
        log.append(records((b"a", b"v"), transactional=True, producer_id=9, producer_epoch=0, base_sequence=0), 5)
        if ended:
            marker = build_control_batch(1, 0, producer_id=9, producer_epoch=0, timestamp_ms=1_000)
            log.append(bytearray(marker), 5)
        log.append(records((b"b", b"v")), 5)
        log.append(records((b"c", b"v")), 5)

    change(folder, CONSUMER_OFFSETS, write)
    engine = LmdbLogEngine(folder)
    log = engine.get(PartitionKey(topic_id(engine, CONSUMER_OFFSETS), 0))
    assert log is not None
    end = log.high_watermark
    first = end - (4 if ended else 3)
    # Earlier records may be duplicates: remove them, so that only the transaction is left.
    log.rewrite({base: None for base, _ in log.batches() if base < first}, end - 1)
    engine.commit()
    engine.close()
    assert found(run, folder) == ([] if ended else [(f"{CONSUMER_OFFSETS}-0", first, "compaction")])


def test_an_unreadable_record_of_a_coordinator_is_reported(run: Run, folder: Path) -> None:
    offset = []

    def write(log: PartitionLog) -> None:
        offset.append(log.append(records((b"\x00\x01\x00\x09short", b"\x00\x01")), 5))

    change(folder, CONSUMER_OFFSETS, write)
    assert found(run, folder) == [(f"{CONSUMER_OFFSETS}-0", offset[0], "record")]


def test_logs_are_checked_despite_damaged_metadata(run: Run, folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.get(PartitionKey(METADATA_TOPIC_ID, 0))
    assert log is not None
    number = log._number  # type: ignore[attr-defined]
    engine.close()
    before = raw(folder, number, 0, bytes(100))
    raw(folder, number, 0, before[:-1] + bytes([before[-1] ^ 1]))
    assert found(run, folder) == [(f"{CLUSTER_METADATA}-0", 0, "crc")]


def test_a_compacted_folder_is_valid_and_has_the_same_state(run: Run, folder: Path) -> None:
    settings = {
        **SETTINGS,
        "kcore.snapshot.min.bytes": "1",
        "kcore.snapshot.live.ratio": "0",
        "log.cleaner.backoff.ms": "1",
    }
    offsets = run("offsets", "list", folder).out
    before = len(run("log", "dump", folder, "--topic", CONSUMER_OFFSETS).out.splitlines())
    with kcore.open(folder, config=settings, clock=ManualClock(wall_ms=1_700_000_000_000)) as engine:
        engine.advance(10)
    log_engine = LmdbLogEngine(folder)
    log = log_engine.get(PartitionKey(topic_id(log_engine, CONSUMER_OFFSETS), 0))
    assert log is not None
    assert log.cleaned_to > 0
    log_engine.close()
    assert found(run, folder) == []
    assert len(run("log", "dump", folder, "--topic", CONSUMER_OFFSETS).out.splitlines()) <= before
    assert run("offsets", "list", folder).out == offsets


def test_compact_returns_space_to_the_file_system(run: Run, folder: Path) -> None:
    change(folder, "lines", lambda log: [log.append(records((b"k", b"x" * 9_000)), 5) for _ in range(300)] and None)
    change(folder, "lines", lambda log: log.delete_before(log.high_watermark - 1))
    size = (folder / "data.mdb").stat().st_size
    ran = run("log", "compact", folder, "--format", "json")
    (sizes,) = ran.rows
    assert ran.status == 0
    assert sizes == {"bytes_before": size, "bytes_after": (folder / "data.mdb").stat().st_size}
    assert sizes["bytes_after"] < size / 2
    assert found(run, folder) == []


@pytest.mark.parametrize("action", ["verify", "compact"])
def test_an_open_or_missing_folder_is_refused(run: Run, folder: Path, tmp_path: Path, action: str) -> None:
    with kcore.open(folder, config=SETTINGS):
        ran = run("log", action, folder)
        assert (ran.status, "in use by this process" in ran.err) == (1, True)
    ran = run("log", action, tmp_path / "nothing")
    assert (ran.status, "no kcore data folder" in ran.err) == (1, True)
