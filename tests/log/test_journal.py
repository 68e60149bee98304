"""The journal of small batches: readers see no seam, a crash leaves it behind, the next opening moves it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from kcore.log import DataFolderError, LmdbLogEngine, LogError, MemoryLogEngine, lmdb_journal, verify_folder
from kcore.log.lmdb_journal import MAX_ROUND_BYTES, MAX_ROUNDS, MAX_SIZE_BYTES, Batches, Journal
from kcore.log.lmdb_layout import JOURNAL_DB, LOG_DB
from kcore.log.storage import ReclaimTask
from kcore.log.write_set import WriteSet
from tests.log.batches import batch, contents, key, stamped
from tests.seeds import SEED

PARTITIONS = 7


@pytest.fixture
def engine(folder: Path) -> Iterator[LmdbLogEngine]:
    """Without a tail in memory: every reading goes to the storage."""
    opened = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    yield opened
    opened.close()


@contextmanager
def crashed(folder: Path, tmp_path: Path) -> Iterator[Path]:
    """Yields a copy of the folder as a killed process would leave it."""
    copy = tmp_path / "crashed"
    shutil.copytree(folder, copy)
    yield copy
    shutil.rmtree(copy)


def entries(folder: Path, database: bytes) -> int:
    """Returns the number of entries in a database of a folder that no engine has open."""
    with lmdb.open(str(folder), max_dbs=8, readonly=True, lock=False) as env, env.begin() as txn:
        return int(txn.stat(env.open_db(database, txn=txn, create=False))["entries"])


def append_rounds(engine: LmdbLogEngine, rounds: int, size_bytes: int = 20) -> list[list[bytes]]:
    """A batch for each partition in each round; returns what each partition must hold of them."""
    logs = [engine.open(key(number)) for number in range(PARTITIONS)]
    stored: list[list[bytes]] = [[] for _ in logs]
    for turn in range(rounds):
        for number, log in enumerate(logs):
            data = batch(1 + number % 3, size_bytes, fill=turn % 256)
            stored[number].append(stamped(data, log.append(data, 0), 0))
        engine.commit()
    return stored


def test_small_rounds_are_in_the_journal_until_it_is_moved(engine: LmdbLogEngine, folder: Path, tmp_path: Path) -> None:
    """Every partition reads the same before the move and behind it, from any offset."""
    stored = append_rounds(engine, MAX_ROUNDS)
    with crashed(folder, tmp_path) as copy:
        assert (entries(copy, JOURNAL_DB), entries(copy, LOG_DB)) == (MAX_ROUNDS, 0)
    assert [contents(engine.open(key(number))) for number in range(PARTITIONS)] == stored
    more = append_rounds(engine, 3)
    with crashed(folder, tmp_path) as copy:
        assert (entries(copy, JOURNAL_DB), entries(copy, LOG_DB)) == (3, MAX_ROUNDS * PARTITIONS)
    for number in range(PARTITIONS):
        log = engine.open(key(number))
        whole = stored[number] + more[number]
        assert contents(log) == whole
        records = 1 + number % 3
        for offset in (0, 1, MAX_ROUNDS * records - 1, MAX_ROUNDS * records, log.end_offset - 1):
            found = [bytes(data) for data in log.read(offset, 1 << 20)]
            assert found == whole[offset // records :], (number, offset)
    assert engine.verify(deep=True) == []


def test_a_crash_leaves_the_journal_and_the_next_opening_moves_it(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    stored = append_rounds(engine, 40)
    with crashed(folder, tmp_path) as copy:
        assert entries(copy, JOURNAL_DB) == 40
        assert verify_folder(copy) == []
        assert (entries(copy, JOURNAL_DB), entries(copy, LOG_DB)) == (0, 40 * PARTITIONS)
        again = LmdbLogEngine(copy)
        assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
        again.close()


def test_a_clean_close_leaves_no_journal(engine: LmdbLogEngine, folder: Path) -> None:
    append_rounds(engine, 5)
    engine.close()
    assert (entries(folder, JOURNAL_DB), entries(folder, LOG_DB)) == (0, 5 * PARTITIONS)


def test_a_large_round_goes_to_the_log_and_what_was_before_it_too(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    stored = append_rounds(engine, 4)
    log = engine.open(key(0))
    data = batch(1, MAX_ROUND_BYTES)
    stored[0].append(stamped(data, log.append(data, 0), 0))
    engine.commit()
    with crashed(folder, tmp_path) as copy:
        assert (entries(copy, JOURNAL_DB), entries(copy, LOG_DB)) == (0, 4 * PARTITIONS + 1)
    assert contents(log) == stored[0]


def test_many_bytes_are_moved_before_many_rounds_are(engine: LmdbLogEngine, folder: Path, tmp_path: Path) -> None:
    rounds = MAX_SIZE_BYTES // (PARTITIONS * 8_000) + 2
    assert rounds < MAX_ROUNDS
    append_rounds(engine, rounds, 8_000)
    with crashed(folder, tmp_path) as copy:
        assert 0 < entries(copy, LOG_DB) < rounds * PARTITIONS
        assert entries(copy, JOURNAL_DB) < rounds


@pytest.mark.parametrize("damage", [b"", b"\x00" * 7, b"\xff" * 16 + b"\x00", (1 << 40).to_bytes(20, "big")])
def test_a_damaged_journal_is_refused_when_the_folder_is_opened(
    damage: bytes, engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    append_rounds(engine, 3)
    with crashed(folder, tmp_path) as copy:
        with lmdb.open(str(copy), max_dbs=8) as env, env.begin(write=True) as txn:
            journal = env.open_db(JOURNAL_DB, txn=txn, create=False)
            if damage:
                txn.put((1).to_bytes(8, "big"), damage, db=journal)
            else:
                txn.delete((1).to_bytes(8, "big"), db=journal)
        with pytest.raises(DataFolderError, match="the journal is damaged: "):
            LmdbLogEngine(copy)


def test_deletions_and_drops_find_what_is_in_the_journal(engine: LmdbLogEngine, folder: Path, tmp_path: Path) -> None:
    stored = append_rounds(engine, 10)
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
        assert (entries(copy, JOURNAL_DB), entries(copy, LOG_DB)) == (0, 10 * PARTITIONS - 4 - 10)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [1, 2, SEED], ids=["1", "2", "seed"])
def test_any_rounds_read_as_they_do_in_memory(seed: int, folder: Path, tmp_path: Path) -> None:
    """Rounds of all sizes, deletions, drops and crashes, beside the same in memory."""
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


def test_nobody_writes_between_a_move_and_its_being_remembered(
    engine: LmdbLogEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space is given back on any thread: a round that another one wrote meanwhile would be taken for moved."""
    locked: list[bool] = []
    real = Journal.moved

    def moved(journal: Journal) -> None:
        locked.append(engine._storage._write_lock.locked())  # type: ignore[attr-defined]
        real(journal)

    monkeypatch.setattr(Journal, "moved", moved)
    stored = append_rounds(engine, 3)
    engine.open(key(1)).delete_before(2)
    engine.commit()
    assert not engine.reclaim(10)
    assert locked == [True]
    assert contents(engine.open(key(1))) == stored[1][1:]


def lose_a_round(journal: Journal) -> None:
    """One round less than the file has."""
    journal._fresh.pop()
    journal._rounds -= 1


def lose_batches(journal: Journal) -> None:
    """As many rounds as the file has, but the batches of one are missing."""
    journal._fresh.pop()


def invent_a_round(journal: Journal) -> None:
    journal._rounds += 1


@pytest.mark.parametrize("harm", [lose_a_round, lose_batches, invent_a_round])
@pytest.mark.parametrize("how", ["write", "reclaim", "close"])
def test_a_journal_that_memory_does_not_know_wholly_is_never_deleted(
    harm: Callable[[Journal], None], how: str, engine: LmdbLogEngine, folder: Path, tmp_path: Path
) -> None:
    stored = append_rounds(engine, 6)
    storage = engine._storage
    harm(storage._journal)  # type: ignore[attr-defined]
    if how == "reclaim":
        with pytest.raises(LogError, match="differ"):
            storage.reclaim([ReclaimTask(0, 1, None, forget=False)], 10)
    elif how == "write":
        engine.open(key(0)).append(batch(1, MAX_ROUND_BYTES), 0)
        with pytest.raises(LogError, match="differ"):
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
    real = lmdb_journal.sort_batches

    def sort_some(rounds: list[WriteSet], by_number: Batches) -> None:
        real(rounds[:1], by_number)
        raise MemoryError

    monkeypatch.setattr(lmdb_journal, "sort_batches", sort_some)
    with pytest.raises(MemoryError):
        contents(log)
    monkeypatch.undo()
    assert [contents(engine.open(key(number))) for number in range(PARTITIONS)] == stored
    engine.close()
    again = LmdbLogEngine(folder)
    assert [contents(again.open(key(number))) for number in range(PARTITIONS)] == stored
    again.close()
