"""The journal of small rounds: reads across journal and log, the move to the log, and recovery after a crash."""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from kcore.log import DataFolderError, LmdbLogEngine, LogError, MemoryLogEngine, journal, journal_file, verify_folder
from kcore.log.journal import MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_SIZE_BYTES, Batches, Journal
from kcore.log.journal_file import ENTRY_HEAD, JOURNAL_BYTES, load_entries, read_file
from kcore.log.lmdb_layout import JOURNAL_KEY, LOG_DB, META_DB, OLD_JOURNAL_DB, U32, U64
from kcore.log.lmdb_rows import get_row
from kcore.log.storage import ReclaimTask
from kcore.log.write_set import WriteSet
from kcore_ext.log.partition import SealedPartition
from tests.log.batches import batch, contents, key, split, stamped
from tests.log.raw_rows import make_older
from tests.seeds import SEED

PARTITIONS = 7


@pytest.fixture
def engine(folder: Path) -> Iterator[LmdbLogEngine]:
    """Opens an engine that caches no batches in memory, so that every read goes to the storage."""
    opened = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    yield opened
    opened.close()


@contextmanager
def crashed(folder: Path, tmp_path: Path) -> Iterator[Path]:
    """Yields a copy of the folder in the state that a killed process would leave."""
    copy = tmp_path / "crashed"
    shutil.copytree(folder, copy)
    yield copy
    shutil.rmtree(copy)


def stored_rounds(folder: Path) -> tuple[int | None, int]:
    """Returns the number of rounds in the current journal (None without a journal), and the number of batches in the
    log.
    """
    with lmdb.open(str(folder), max_dbs=8, readonly=True, lock=False) as env, env.begin() as txn:
        batches = sum(len(split(value)) for _, value in txn.cursor(env.open_db(LOG_DB, txn=txn, create=False)))
        identity = get_row(txn, env.open_db(META_DB, txn=txn, create=False), JOURNAL_KEY)
    return None if identity is None else len(load_entries(read_file(str(folder)), identity, str(folder))), batches


def append_rounds(engine: LmdbLogEngine, rounds: int, size_bytes: int = 20) -> list[list[bytes]]:
    """Commits rounds with a batch for each partition. Returns the expected batches of each partition.

    The first round of a new engine creates the partitions or begins their epochs, so it is written to the log.
    """
    logs = [engine.open(key(number)) for number in range(PARTITIONS)]
    stored: list[list[bytes]] = [[] for _ in logs]
    for turn in range(rounds):
        for number, log in enumerate(logs):
            data = batch(1 + number % 3, size_bytes, fill=turn % 256)
            stored[number].append(stamped(data, log.append(data, 0), 0))
        engine.commit()
    return stored


def test_small_rounds_stay_in_the_journal_until_it_is_moved(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    """Reads of every partition give the same result before and after the move, from any offset."""
    stored = append_rounds(engine, MAX_ENTRIES + 1)
    with crashed(folder, tmp_path) as copy:
        assert stored_rounds(copy) == (MAX_ENTRIES, PARTITIONS)
    assert [contents(engine.open(key(number))) for number in range(PARTITIONS)] == stored
    more = append_rounds(engine, 3)
    with crashed(folder, tmp_path) as copy:
        assert stored_rounds(copy) == (2, (MAX_ENTRIES + 2) * PARTITIONS)
    for number in range(PARTITIONS):
        log = engine.open(key(number))
        whole = stored[number] + more[number]
        assert contents(log) == whole
        records = 1 + number % 3
        for offset in (0, 1, MAX_ENTRIES * records - 1, MAX_ENTRIES * records, log.end_offset - 1):
            found = [bytes(data) for data in log.read(offset, 1 << 20)]
            assert found == whole[offset // records :], (number, offset)
    assert engine.verify(deep=True) == []


def test_the_size_of_the_file_never_changes(folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    file = folder / "journal"
    blocks = file.stat().st_blocks
    for size_bytes in (20, 3_000, MAX_ENTRY_BYTES // PARTITIONS - 100):
        append_rounds(engine, 30, size_bytes)
        assert (file.stat().st_size, file.stat().st_blocks) == (JOURNAL_BYTES, blocks)
    engine.close()


def test_a_small_round_takes_one_flush_and_others_take_two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small round takes one flush of the journal and no LMDB transaction.

    Any other round is an LMDB transaction, in which LMDB flushes its file twice.
    """
    engine = LmdbLogEngine(folder)
    append_rounds(engine, 1)
    flushed: list[int] = []
    transactions: list[object] = []
    real = journal_file._sync
    monkeypatch.setattr(journal_file, "_sync", lambda fd, how: (flushed.append(fd), real(fd, how)))
    begin = type(engine._storage)._write_transaction  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(engine._storage),
        "_write_transaction",
        lambda storage, write_set: (transactions.append(write_set), begin(storage, write_set)),
    )
    append_rounds(engine, 10)
    assert (len(flushed), len(transactions)) == (10, 0)
    engine.put_meta("name", b"value")
    engine.commit()
    assert (len(flushed), len(transactions)) == (10, 1)
    engine.close()


def test_a_crash_leaves_the_journal_and_the_next_opening_moves_it(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    stored = append_rounds(engine, 40)
    with crashed(folder, tmp_path) as copy:
        assert stored_rounds(copy) == (39, PARTITIONS)
        assert verify_folder(copy) == []
        assert stored_rounds(copy) == (None, 40 * PARTITIONS)
        again = LmdbLogEngine(copy)
        assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
        again.close()


@pytest.mark.parametrize("empty", [False, True])
def test_a_journal_without_its_data_file_is_refused_and_kept(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path, empty: bool
) -> None:
    """A new data file would get a new journal. Then the last records would be lost even if the old data file came
    back.
    """
    stored = append_rounds(engine, 40)
    with crashed(folder, tmp_path) as copy:
        journal = (copy / "journal").read_bytes()
        (copy / "data.mdb").rename(tmp_path / "saved")
        if empty:
            (copy / "data.mdb").touch()
        with pytest.raises(DataFolderError, match="`journal` has records"):
            LmdbLogEngine(copy)
        assert (copy / "journal").read_bytes() == journal
        (tmp_path / "saved").rename(copy / "data.mdb")
        again = LmdbLogEngine(copy)
        assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
        again.close()


def test_after_a_clean_close_the_data_file_alone_has_everything(engine: LmdbLogEngine, folder: Path) -> None:
    stored = append_rounds(engine, 5)
    engine.close()
    assert stored_rounds(folder) == (None, 5 * PARTITIONS)
    (folder / "journal").unlink()
    again = LmdbLogEngine(folder)
    assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
    again.close()


def test_a_large_round_goes_to_the_log_after_the_rounds_of_the_journal(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    stored = append_rounds(engine, 4)
    log = engine.open(key(0))
    data = batch(1, MAX_ENTRY_BYTES)
    stored[0].append(stamped(data, log.append(data, 0), 0))
    engine.commit()
    with crashed(folder, tmp_path) as copy:
        assert stored_rounds(copy) == (0, 4 * PARTITIONS + 1)
    assert contents(log) == stored[0]


def test_many_bytes_are_moved_before_many_rounds_are(engine: LmdbLogEngine, folder: Path, tmp_path: Path) -> None:
    rounds = MAX_SIZE_BYTES // (PARTITIONS * 8_000) + 5
    assert rounds < MAX_ENTRIES
    append_rounds(engine, rounds, 8_000)
    with crashed(folder, tmp_path) as copy:
        entries, batches = stored_rounds(copy)
        assert entries is not None
        assert entries + batches // PARTITIONS == rounds
        assert 0 < entries < rounds - 1


def test_a_full_disk_without_space_for_the_journal_leaves_a_working_log(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(5 << 20))
    folder = small_disk / "data"
    engine = LmdbLogEngine(folder)
    stored = append_rounds(engine, 5)
    assert not (folder / "journal").exists()
    with crashed(folder, tmp_path) as copy:
        assert stored_rounds(copy) == (None, 5 * PARTITIONS)
    assert [record.getMessage()[:60] for record in caplog.records] == [
        f"log {folder}: no space for the journal of 2359296 bytes"[:60]
    ]
    engine.close()
    ballast.unlink()
    again = LmdbLogEngine(folder)
    more = append_rounds(again, 5)
    with crashed(folder, tmp_path) as copy:
        assert stored_rounds(copy) == (4, 6 * PARTITIONS)
    assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == [
        one + other for one, other in zip(stored, more, strict=True)
    ]
    again.close()


def damage_file(folder: Path, how: str) -> None:
    file = folder / "journal"
    data = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(data[:5_000])
    else:
        size = int.from_bytes(data[4:8], "big")
        data[32 + size + 40] ^= 1  # in round 1
        file.write_bytes(data)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("missing", "the file `journal` is missing or empty, and had the newest writes; restore the file if you can"),
        ("truncated", "the file `journal` has 5000 of 2359296 bytes"),
        ("flipped", "commit 1 at position 711, although the later commit 2 is undamaged"),
    ],
)
def test_a_journal_that_lacks_acknowledged_rounds_is_refused_and_not_changed(
    how: str, what: str, folder: Path, tmp_path: Path
) -> None:
    engine = LmdbLogEngine(folder)
    append_rounds(engine, 4)
    with crashed(folder, tmp_path) as copy:
        damage_file(copy, how)
        before = {file.name: file.read_bytes() for file in copy.iterdir() if file.name != "kcore.lock"}
        for tool in (LmdbLogEngine, verify_folder):
            with pytest.raises(DataFolderError) as refused:
                tool(copy)
            assert (refused.value.what, refused.value.where) == (
                f"the journal is damaged: {what}; `kcore log repair` keeps what can be read",
                "journal",
            )
        before["lock.mdb"] = (copy / "lock.mdb").read_bytes()
        assert {file.name: file.read_bytes() for file in copy.iterdir() if file.name != "kcore.lock"} == before
    engine.close()


def old_round(*batches: tuple[int, int, bytes]) -> bytes:
    """Encodes batches (number, base offset, bytes) in the journal format of version 3."""
    return b"".join(U32.pack(number) + U64.pack(base) + U32.pack(len(data)) + data for number, base, data in batches)


@pytest.mark.parametrize("damaged", [False, True])
def test_the_journal_of_an_older_version_is_moved_to_the_log_and_removed(folder: Path, damaged: bool) -> None:
    engine = LmdbLogEngine(folder)
    stored = append_rounds(engine, 3)
    engine.close()
    number = 3
    base = len(stored[number]) * (1 + number % 3)
    more = [stamped(batch(2), base, 0), stamped(batch(1), base + 2, 0)]
    make_older(folder, 3)
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True) as txn:
        old = env.open_db(OLD_JOURNAL_DB, txn=txn)
        txn.put(U64.pack(0), old_round((number, base, more[0])), db=old)
        txn.put(U64.pack(1), old_round((number, base + 2, more[1]))[: -3 if damaged else None], db=old)
    if damaged:
        with pytest.raises(DataFolderError, match="the journal is damaged: entry 1 ends within a batch"):
            LmdbLogEngine(folder)
        return
    for _ in range(2):
        again = LmdbLogEngine(folder)
        assert contents(again.open(key(number))) == stored[number] + more
        assert again.verify(deep=True) == []
        again.close()
    with lmdb.open(str(folder), max_dbs=8, readonly=True, lock=False) as env, env.begin() as txn:
        assert [bytes(name) for name, _ in txn.cursor()] == [LOG_DB, META_DB, b"snap"]


def test_deletions_and_drops_find_what_is_in_the_journal(engine: LmdbLogEngine, folder: Path, tmp_path: Path) -> None:
    stored = append_rounds(engine, 10)  # the first round is a value of each partition, and the others share a value
    engine.open(key(1)).delete_before(8)
    engine.commit()
    engine.drop(key(2))
    engine.commit()
    while engine.reclaim(3):
        pass
    assert engine.verify(deep=True) == []
    assert contents(engine.open(key(1))) == stored[1][4:]
    with crashed(folder, tmp_path) as copy:
        assert verify_folder(copy) == []
        assert stored_rounds(copy)[1] == 10 * PARTITIONS - 1 - 10


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [1, 2, SEED], ids=["1", "2", "seed"])
def test_any_rounds_read_the_same_as_from_a_log_in_memory(seed: int, folder: Path, tmp_path: Path) -> None:
    """Compares rounds of all sizes, deletions, drops and crashes with the same operations on a log in memory."""
    rng = random.Random(seed)
    durable, memory = LmdbLogEngine(folder, "os", tail_size_bytes=0), MemoryLogEngine()
    for turn in range(600):
        for engine_number in rng.sample(range(PARTITIONS), rng.randrange(1, PARTITIONS)):
            data = batch(rng.randrange(1, 4), rng.choice([10, 100, 3_000, 30_000]), fill=turn % 256)
            for engine in (durable, memory):
                engine.open(key(engine_number)).append(bytearray(data), 0)
        if rng.random() < 0.05:
            number = rng.randrange(PARTITIONS)
            below = rng.randrange(memory.open(key(number)).high_watermark + 1)
            for engine in (durable, memory):
                log = engine.open(key(number))
                log.delete_before(max(below, log.log_start_offset))
        if rng.random() < 0.01:
            number = rng.randrange(PARTITIONS)
            for engine in (durable, memory):
                engine.drop(key(number))
        for engine in (durable, memory):
            engine.commit()
        if rng.random() < 0.05:
            durable.reclaim(20)
        if rng.random() < 0.02:
            with crashed(folder, tmp_path) as copy:
                assert verify_folder(copy) == []
                again = LmdbLogEngine(copy, "os")
                assert [contents(again.open(where)) for where in memory.partitions()] == [
                    contents(memory.open(where)) for where in memory.partitions()
                ], f"seed {seed}, round {turn}"
                again.close()
        where = rng.choice(memory.partitions())
        start = memory.open(where).log_start_offset
        offset = rng.randrange(start, memory.open(where).end_offset + 1)
        read = [[bytes(data) for data in engine.open(where).read(offset, 9_000)] for engine in (durable, memory)]
        assert read[0] == read[1], f"seed {seed}, round {turn}"
    durable.close()


def test_no_round_is_written_between_a_move_and_the_record_of_the_move(
    engine: LmdbLogEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any thread may move the journal. A round that another thread writes during the move must not count as moved."""
    locked: list[bool] = []
    real = Journal.moved

    def moved(one: Journal) -> None:
        locked.append(engine._storage._write_lock.locked())  # type: ignore[attr-defined]
        real(one)

    monkeypatch.setattr(Journal, "moved", moved)
    stored = append_rounds(engine, 3)
    engine.open(key(1)).delete_before(2)
    engine.commit()
    assert not engine.reclaim(10)
    assert locked == [True, True, True], (
        "the transactions of the first round, the deletion and the freed space hold the lock"
    )
    assert contents(engine.open(key(1))) == stored[1][1:]


def lose_a_round(one: Journal) -> None:
    """Removes the last round from the journal's state in memory, so that the file has one round more."""
    one._areas[-1].entries.pop()


def lose_batches(one: Journal) -> None:
    """Removes the batches of the last round from the journal's state in memory, but not the round."""
    entries = one._areas[-1].entries
    entries[-1] = entries[-1][: ENTRY_HEAD.size]


def forget_a_round(one: Journal) -> None:
    """Resets the journal's state in memory to the time before the last round, which is in the file."""
    area = one._areas[-1]
    area.size_bytes -= len(area.entries.pop())


@pytest.mark.parametrize("harm", [lose_a_round, lose_batches, forget_a_round])
@pytest.mark.parametrize("how", ["write", "reclaim", "close"])
def test_a_journal_that_differs_from_memory_stops_all_writes(
    harm: Callable[[Journal], None], how: str, engine: LmdbLogEngine, folder: Path
) -> None:
    stored = append_rounds(engine, 6)
    storage = engine._storage
    harm(storage._journal)  # type: ignore[attr-defined]
    if how == "reclaim":
        with pytest.raises(LogError, match="differs"):
            storage.reclaim([ReclaimTask(0, 1, None, forget=False)], 10)
    elif how == "write":
        engine.open(key(0)).append(batch(1, MAX_ENTRY_BYTES), 0)
        with pytest.raises(LogError, match="differs"):
            engine.commit()
    if how != "close":
        engine.open(key(0)).append(batch(), 0)
        with pytest.raises(LogError, match="must be opened again"):
            engine.commit()
    engine.close()
    again = LmdbLogEngine(folder)
    assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
    assert again.verify(deep=True) == []
    again.close()


def test_rounds_lost_by_the_journal_file_are_moved_from_memory(engine: LmdbLogEngine, folder: Path) -> None:
    stored = append_rounds(engine, 6)
    (folder / "journal").write_bytes(bytes(JOURNAL_BYTES))
    more = append_rounds(engine, 1, MAX_ENTRY_BYTES)
    whole = [one + other for one, other in zip(stored, more, strict=True)]
    assert [contents(engine.open(key(number))) for number in range(PARTITIONS)] == whole
    engine.close()
    again = LmdbLogEngine(folder)
    assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == whole
    again.close()


def test_no_write_set_is_kept_for_the_garbage_collector(engine: LmdbLogEngine) -> None:
    append_rounds(engine, 20)
    kept = [each for each in gc.get_objects() if isinstance(each, WriteSet | SealedPartition) and is_of(each, engine)]
    assert kept == []


def is_of(each: WriteSet | SealedPartition, engine: LmdbLogEngine) -> bool:
    """Returns True if a write set or its part belongs to an engine."""
    parts = each.partitions if isinstance(each, WriteSet) else [each]
    return any(part.log._engine is engine for part in parts)


@pytest.mark.parametrize("sorted_first", [False, True])
def test_rounds_whose_sorting_ran_out_of_memory_are_sorted_again(
    sorted_first: bool, engine: LmdbLogEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = append_rounds(engine, 5)
    log = engine.open(key(3))
    if sorted_first:
        assert contents(log) == stored[3]
        more = append_rounds(engine, 2)
        stored = [one + other for one, other in zip(stored, more, strict=True)]
    real = journal.sort_batches

    def sort_some(entries: list[bytes], by_number: Batches) -> None:
        real(entries[:1], by_number)
        raise MemoryError

    monkeypatch.setattr(journal, "sort_batches", sort_some)
    with pytest.raises(MemoryError):
        contents(log)
    monkeypatch.undo()
    assert [contents(engine.open(key(number))) for number in range(PARTITIONS)] == stored
    engine.close()
    again = LmdbLogEngine(folder)
    assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
    again.close()
