"""The two areas of the journal: while one full area is moved to the log, new rounds are written to the other area."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from kcore.log import DataFolderError, LmdbLogEngine, LogError, MemoryLogEngine, journal, lmdb_copy, verify_folder
from kcore.log.journal_file import Reference, load_entries, read_file
from kcore.log.lmdb_copy import copy_folder
from kcore.log.lmdb_layout import JOURNAL_KEY, LOG_DB, META_DB
from kcore.log.lmdb_rows import get_row
from tests.faults.log_model import at_call
from tests.log.batches import batch, contents, fill, key, split
from tests.log.journals import AREA_BYTES, JOURNAL_BYTES
from tests.log.raw_rows import make_older, put_row
from tests.log.test_failures import break_transaction
from tests.log.test_journal_failures import FailingFile, after_a_kill
from tests.seeds import SEED

ROUNDS = 4
"""Number of rounds that fill an area of the journal in these tests."""


class Later:
    """Collects the moves that a log starts. The test runs them later."""

    def __init__(self) -> None:
        self.moves: list[Callable[[], None]] = []

    def start(self, move: Callable[[], None]) -> bool:
        self.moves.append(move)
        return True

    def run(self) -> int:
        moves, self.moves = self.moves, []
        for move in moves:
            move()
        return len(moves)


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def engine(folder: Path, later: Later, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbLogEngine]:
    """Opens an engine without a tail in memory, so that every read goes to the storage."""
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)
    opened = LmdbLogEngine(folder, tail_size_bytes=0)
    opened.move_beside(later.start)
    yield opened
    opened.close()


def stored_rounds(folder: Path, tmp_path: Path) -> tuple[int, list[int], int]:
    """Reads a copy of the folder. Returns the first round number that LMDB has stored, the numbers of the rounds in the
    journal file, and the number of batches in the log.
    """
    copy = tmp_path / "looked-at"
    shutil.copytree(folder, copy)
    with lmdb.open(str(copy), max_dbs=8, readonly=True, lock=False) as env, env.begin() as txn:
        batches = sum(len(split(value)) for _, value in txn.cursor(env.open_db(LOG_DB, txn=txn, create=False)))
        stored = get_row(txn, env.open_db(META_DB, txn=txn, create=False), JOURNAL_KEY)
    assert stored is not None
    entries = load_entries(read_file(str(copy)), stored, str(copy))
    shutil.rmtree(copy)
    return Reference.decode(stored).first_number, [entry.number for entry in entries], batches


def grow(engine: LmdbLogEngine, rounds: int) -> list[bytes]:
    """Commits rounds of one batch. Returns the batches."""
    log = engine.open(key())
    return [one for _ in range(rounds) for one in fill(log, engine, 1)]


def test_rounds_go_to_the_other_area_until_the_full_one_is_moved(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The areas alternate, the round numbers continue across both areas, and no commit begins an LMDB transaction."""
    stored = grow(engine, 1 + ROUNDS)
    monkeypatch.setattr(type(engine._storage), "_write_transaction", None)
    for first in range(0, 5 * ROUNDS, ROUNDS):
        rounds = list(range(first, first + ROUNDS))
        assert (stored_rounds(folder, tmp_path), later.moves) == ((first, rounds, 1 + first), [])
        stored += grow(engine, ROUNDS)
        rounds += range(first + ROUNDS, first + 2 * ROUNDS)
        assert stored_rounds(folder, tmp_path) == (first, rounds, 1 + first)
        assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored
        assert later.run() == 1
        assert stored_rounds(folder, tmp_path) == (first + ROUNDS, rounds[ROUNDS:], 1 + first + ROUNDS)
        assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored
    assert engine.verify(deep=True) == []


def test_if_both_areas_are_full_a_commit_moves_them(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later
) -> None:
    stored = grow(engine, 1 + 2 * ROUNDS)
    identity = engine._storage._journal.identity  # type: ignore[attr-defined]
    stored += grow(engine, 1)
    assert engine._storage._journal.identity != identity  # type: ignore[attr-defined]
    assert stored_rounds(folder, tmp_path) == (0, [], 2 + 2 * ROUNDS)
    assert later.run() == 1, "the late move finds nothing"
    stored += grow(engine, ROUNDS)
    assert stored_rounds(folder, tmp_path) == (0, list(range(ROUNDS)), 2 + 2 * ROUNDS)
    assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored


def test_without_a_thread_one_area_is_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)
    engine = LmdbLogEngine(folder)
    engine.move_beside(lambda move: False)
    engine.move_beside(None)
    grow(engine, 1 + ROUNDS)
    assert stored_rounds(folder, tmp_path) == (0, list(range(ROUNDS)), 1)
    grow(engine, 1)
    assert stored_rounds(folder, tmp_path) == (0, [], 2 + ROUNDS)
    engine.close()


def test_a_large_round_begins_the_other_area_before_it_takes_a_transaction(
    folder: Path, tmp_path: Path, later: Later
) -> None:
    """Four rounds of 250 KB fit into an area of the journal. The fifth round is written to the other area, without an
    LMDB transaction, and the first area is moved to the log.
    """
    engine = LmdbLogEngine(folder)
    engine.move_beside(later.start)
    log = engine.open(key())
    stored = fill(log, engine, 1)
    for turn in range(12):
        stored += fill(log, engine, 1, size_bytes=250_000)
        rounds = stored_rounds(folder, tmp_path)[1]
        assert len(rounds) == turn % 4 + 1 + (4 if later.moves else 0), turn
        later.run()
    assert after_a_kill(folder, tmp_path) == contents(log) == stored
    engine.close()


def test_after_many_rounds_another_journal_begins(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round number of an entry has 32 bits, so the journal must end before the number overflows."""
    monkeypatch.setattr(journal, "LAST_NUMBER", 3 * ROUNDS)
    stored = grow(engine, 1)
    for _ in range(3):
        stored += grow(engine, ROUNDS)
        later.run()
    assert stored_rounds(folder, tmp_path)[0] == 2 * ROUNDS
    stored += grow(engine, 2)
    assert stored_rounds(folder, tmp_path)[:2] == (0, [0])
    assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [1, 2, SEED], ids=["1", "2", "seed"])
def test_any_rounds_and_moves_read_the_same_as_from_a_log_in_memory(
    seed: int, folder: Path, tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares rounds of all sizes, deletions, metadata, moves at any time, and crashes with the same operations in
    memory.
    """
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)
    rng = random.Random(seed)
    durable, memory = LmdbLogEngine(folder, "os", tail_size_bytes=0), MemoryLogEngine()
    durable.move_beside(later.start)
    engines = durable, memory
    for turn in range(500):
        for number in rng.sample(range(5), rng.randrange(1, 5)):
            data = batch(rng.randrange(1, 4), rng.choice([10, 100, 3_000]), fill=turn % 256)
            for engine in engines:
                engine.open(key(number)).append(bytearray(data), 0)
        if rng.random() < 0.05:
            number = rng.randrange(5)
            below = memory.open(key(number)).high_watermark
            for engine in engines:
                engine.open(key(number)).delete_before(below)
        if rng.random() < 0.03:
            for engine in engines:
                engine.put_meta("turn", b"%d" % turn)
        for engine in engines:
            engine.commit()
        if rng.random() < 0.2:
            later.run()
        if rng.random() < 0.05:
            durable.reclaim(20)
        if rng.random() < 0.03:
            copy = tmp_path / "crashed"
            shutil.copytree(folder, copy)
            assert verify_folder(copy) == []
            again = LmdbLogEngine(copy, "os")
            assert [contents(again.open(where)) for where in memory.partitions()] == [
                contents(memory.open(where)) for where in memory.partitions()
            ], f"seed {seed}, round {turn}"
            again.close()
            shutil.rmtree(copy)
        where = rng.choice(memory.partitions())
        start = memory.open(where).log_start_offset
        offset = rng.randrange(start, memory.open(where).end_offset + 1)
        read = [[bytes(data) for data in engine.open(where).read(offset, 9_000)] for engine in engines]
        assert read[0] == read[1], f"seed {seed}, round {turn}"
    durable.close()


def test_threads_commit_move_and_read_at_the_same_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    threads: list[threading.Thread] = []

    def start(move: Callable[[], None]) -> bool:
        threads.append(threading.Thread(target=move))
        threads[-1].start()
        return True

    engine.move_beside(start)
    log = engine.open(key())
    stored = fill(log, engine, 1)
    wrong: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            end = log.high_watermark
            first = max(0, end - 20)
            found = [int.from_bytes(bytes(data)[:8]) for data in log.read(first, 1 << 20)]
            if len(found) < end - first or found != list(range(first, first + len(found))):
                wrong.append(f"{end}: {found}")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(600):
            stored += fill(log, engine, 1)
            if turn % 50 == 49:
                engine.put_meta("turn", b"%d" % turn)
                engine.commit()
    finally:
        ended.set()
        reader.join()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(threads) > 10
    assert contents(log) == stored
    assert engine.verify(deep=True) == []
    engine.close()
    again = LmdbLogEngine(folder)
    assert contents(again.open(key())) == stored
    again.close()


# ---- failures


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("moved_by", ["a commit", "another move"])
def test_a_move_that_fails_disturbs_no_commit(
    lands: bool,
    moved_by: str,
    engine: LmdbLogEngine,
    folder: Path,
    tmp_path: Path,
    later: Later,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = grow(engine, 1 + ROUNDS + 1)
    break_transaction(engine, lands, lmdb.DiskError("mdb_txn_commit"))
    later.run()
    assert "the full area of the journal could not be moved" in caplog.records[0].getMessage()
    assert engine._storage._journal.has_full_area is not lands  # type: ignore[attr-defined]
    assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored
    stored += grow(engine, ROUNDS if moved_by == "a commit" else 1)
    if moved_by == "another move":
        engine._storage._move_full_area()  # type: ignore[attr-defined]
        assert not engine._storage._journal.has_full_area  # type: ignore[attr-defined]
    for _ in range(3 * ROUNDS):
        stored += grow(engine, 1)
        assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored
        later.run()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("lands", [False, True])
def test_while_the_result_of_a_move_is_unknown_no_area_is_overwritten(
    lands: bool, engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later
) -> None:
    """The move of an area to the log fails with an unknown result. Rounds are written to the other area until it is
    full.

    The next round then needs an LMDB transaction, which fails until LMDB's file can be read. No area is overwritten.
    """
    stored = grow(engine, 1 + ROUNDS + 1)
    environment = engine._storage._environment  # type: ignore[attr-defined]
    break_transaction(engine, lands, lmdb.DiskError("mdb_txn_commit"))
    with pytest.MonkeyPatch.context() as patch:

        def reopen(self: object) -> int:
            raise LogError("injected")

        patch.setattr(type(environment), "reopen", reopen)
        later.run()
        stored += grow(engine, ROUNDS - 1)
        log = engine.open(key())
        for _ in range(3):
            log.append(batch(), 0)
            with pytest.raises(LogError, match="injected"):
                engine.commit()
            assert (engine.uncertain, log.end_offset) == (False, len(stored))
            assert after_a_kill(folder, tmp_path) == stored
            later.run()
    for _ in range(3 * ROUNDS):
        stored += grow(engine, 1)
        assert after_a_kill(folder, tmp_path) == contents(engine.open(key())) == stored
        later.run()


@pytest.mark.parametrize("when", ["before the move", "after the move", "after a move with an unknown result"])
def test_an_entry_that_fails_beside_a_full_area_fails_alone(
    when: str, folder: Path, tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One area of the journal is full, and writing an entry to the other area fails. Only the round of this entry is
    lost.

    The engine then moves both areas to the log from its memory.
    """
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)
    file = FailingFile(monkeypatch)
    engine = LmdbLogEngine(folder, tail_size_bytes=0)
    engine.move_beside(later.start)
    stored = grow(engine, 1 + ROUNDS + 2)
    if when != "before the move":
        if "unknown" in when:
            break_transaction(engine, True, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                later.run()
        later.run()
    log = engine.open(key())
    log.append(batch(5), 0)
    file.failure = "flush"
    with pytest.raises(LogError, match="writing the journal"):
        engine.commit()
    assert (engine.uncertain, log.end_offset) == (False, len(stored))
    assert after_a_kill(folder, tmp_path) == contents(log) == stored
    for _ in range(3 * ROUNDS):
        stored += grow(engine, 1)
        later.run()
        assert after_a_kill(folder, tmp_path) == contents(log) == stored
    engine.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_exception_anywhere_in_a_move_loses_nothing(
    error: type[BaseException], engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later
) -> None:
    """Later rounds and moves find each batch exactly once, in memory or in the log."""
    stored = grow(engine, 1)
    nth = hits = missed = 0
    while missed < 2:
        nth += 1
        while not later.moves:
            stored += grow(engine, 1)
        try:
            with at_call(nth, error()):
                later.run()
            unharmed = not engine._storage._uncertain_move  # type: ignore[attr-defined]
            missed = missed + 1 if unharmed and not engine._storage._journal.has_full_area else 0  # type: ignore[attr-defined]
        except BaseException as raised:
            assert isinstance(raised, error)  # noqa: PT017
            missed = 0
            hits += 1
        assert contents(engine.open(key())) == stored
        if nth % 10 == 0:
            assert after_a_kill(folder, tmp_path) == stored
        later.moves.clear()
        stored += grow(engine, ROUNDS)
    assert nth > 30
    assert contents(engine.open(key())) == stored
    assert after_a_kill(folder, tmp_path) == stored


def test_memory_that_lacks_a_round_of_the_full_area_stops_all_writes(
    engine: LmdbLogEngine, folder: Path, later: Later
) -> None:
    stored = grow(engine, 1 + ROUNDS + 1)
    engine._storage._journal._areas[0].entries.pop()  # type: ignore[attr-defined]
    later.run()
    engine.open(key()).append(batch(), 0)
    with pytest.raises(LogError, match="must be opened again"):
        engine.commit()
    engine.close()
    again = LmdbLogEngine(folder)
    assert contents(again.open(key())) == stored
    again.close()


def test_a_move_after_the_close_does_nothing(folder: Path, later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)
    engine = LmdbLogEngine(folder)
    engine.move_beside(later.start)
    stored = grow(engine, 1 + ROUNDS + 1)
    engine.close()
    before = (folder / "data.mdb").read_bytes()
    later.run()
    assert (folder / "data.mdb").read_bytes() == before
    again = LmdbLogEngine(folder)
    assert contents(again.open(key())) == stored
    again.close()


# ---- files


def test_a_folder_of_version_4_is_opened_and_its_file_grows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of format version 4 has one area instead of two. The engine opens it, keeps its entries, and enlarges
    the file.
    """
    engine = LmdbLogEngine(folder)
    stored = grow(engine, 5)
    identity = engine._storage._journal.identity  # type: ignore[attr-defined]
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    engine.close()
    make_older(crashed, 4)
    put_row(crashed, JOURNAL_KEY, identity)
    file = crashed / "journal"
    os_truncate(file, AREA_BYTES)
    old = file.read_bytes()
    for _ in range(2):
        again = LmdbLogEngine(crashed)
        assert contents(again.open(key())) == stored
        assert file.read_bytes() == old + bytes(AREA_BYTES)
        assert again.verify(deep=True) == []
        again.close()


def os_truncate(file: Path, size_bytes: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size_bytes)


@pytest.mark.parametrize("how", ["truncated", "damaged in the older area", "damaged first entry of the newer area"])
def test_a_damaged_area_is_refused(how: str, engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later) -> None:
    grow(engine, 1 + ROUNDS + 3)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    file = copy / "journal"
    if how == "truncated":
        os_truncate(file, AREA_BYTES)
        what = f"the file `journal` has {AREA_BYTES} of {JOURNAL_BYTES} bytes"
    else:
        at = 60 if "older" in how else AREA_BYTES + 60
        data = bytearray(file.read_bytes())
        data[at] ^= 1
        file.write_bytes(data)
        what = "commit 0 at position 0, although the later commit 1 is undamaged"
        if "newer" in how:
            what = rf"commit {ROUNDS} at position \d+, although the later commit {ROUNDS + 1} is undamaged"
    with pytest.raises(DataFolderError, match=what):
        LmdbLogEngine(copy)


@pytest.mark.parametrize("moved", [False, True])
def test_a_copy_of_an_open_folder_has_both_areas(
    moved: bool, engine: LmdbLogEngine, folder: Path, tmp_path: Path, later: Later
) -> None:
    stored = grow(engine, 1 + ROUNDS + 2)
    if moved:
        later.run()
        stored += grow(engine, ROUNDS - 1)
    shutil.copytree(folder, tmp_path / "source")  # another process would have it open
    copy_folder(str(tmp_path / "source"), str(tmp_path / "copy"))
    again = LmdbLogEngine(tmp_path / "copy")
    assert contents(again.open(key())) == stored
    assert again.verify(deep=True) == []
    again.close()


def test_a_copy_reads_the_journal_again_if_entries_were_written_meanwhile(
    engine: LmdbLogEngine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server writes entries while a copy reads the journal. The first read misses an entry, so the copy reads the
    journal again, and has all batches.

    The gap is possible if the first read passes the entry's position before the server writes it.
    """
    stored = grow(engine, 1 + ROUNDS + 1)
    source = tmp_path / "source"
    shutil.copytree(folder, source)  # another process would have it open
    reads: list[bytes] = []

    def torn(path: str) -> bytes:
        data = read_file(path)
        if not reads:
            data = bytes(100) + data[100:]
        reads.append(data)
        return data

    monkeypatch.setattr(lmdb_copy, "read_file", torn)
    copy_folder(str(source), str(tmp_path / "copy"))
    assert len(reads) == 2
    again = LmdbLogEngine(tmp_path / "copy")
    assert contents(again.open(key())) == stored
    again.close()
