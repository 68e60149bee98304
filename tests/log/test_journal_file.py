"""Entries of the journal file, and the recovery of files in the state that a crash or a power failure leaves."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.log import DataFolderError, LmdbLogEngine, journal, journal_file
from kcore.log.journal_file import (
    JournalDamagedError,
    JournalFile,
    Reference,
    entry_at,
    find_lost_entry,
    iter_batches,
    load_entries,
    read_entries,
)
from tests.log.batches import batch, contents, key, stamped
from tests.log.journals import FLUSHED, IDENTITY, JOURNAL_BYTES, encoded, entry

SECTOR_BYTES = 512
OTHER = bytes(range(16))

sizes = st.lists(st.integers(0, 700), max_size=8)


def journal_of(sizes: list[int], identity: bytes = IDENTITY, flags: int = FLUSHED) -> list[bytes]:
    """Returns the entries of a journal with one batch of each size."""
    return [
        entry(number, encoded([(number, number, random.randbytes(size))]), identity, flags)
        for number, size in enumerate(sizes)
    ]


def stored(entries: list[bytes], before: bytes = b"") -> bytes:
    """Returns the bytes of a journal file: the entries, followed by content of an earlier journal."""
    data = b"".join(entries)
    return (data + before[len(data) :]).ljust(JOURNAL_BYTES, b"\0")


@given(sizes=sizes, earlier=sizes)
def test_a_journal_is_read_up_to_the_first_entry_that_is_not_its_own(sizes: list[int], earlier: list[int]) -> None:
    entries = journal_of(sizes)
    data = stored(entries, stored(journal_of(earlier, OTHER)))
    found = load_entries(data, IDENTITY, "/data")
    assert [data[one.start - 32 : one.end] for one in found] == entries
    assert [one.number for one in found] == list(range(len(sizes)))


@given(sizes=st.lists(st.integers(0, 700), min_size=1, max_size=6), data=st.data())
def test_a_torn_last_entry_ends_the_journal(sizes: list[int], data: st.DataObject) -> None:
    """Any sectors of the last entry may be missing."""
    entries = journal_of(sizes)
    last = len(b"".join(entries[:-1]))
    file = bytearray(stored(entries))
    lost = data.draw(st.integers(0, len(entries[-1]) - 1), "first lost byte")
    kept = data.draw(st.integers(lost + 1, len(entries[-1])), "first kept byte")
    garbage = data.draw(st.sampled_from([b"\0", b"\xff"]), "garbage")
    before = bytes(file)
    file[last + lost : last + kept] = garbage * (kept - lost)
    found, end = read_entries(bytes(file), Reference(IDENTITY, 0))
    if bytes(file) == before:
        assert (len(found), end) == (len(sizes), last + len(entries[-1]))
    else:
        assert (len(found), end) == (len(sizes) - 1, last)
    assert load_entries(bytes(file), IDENTITY, "/data") == found


@given(sizes=st.lists(st.integers(0, 700), min_size=2, max_size=6), flags=st.sampled_from([0, FLUSHED]), data=st.data())
def test_damage_before_a_sound_entry_is_damage_only_if_entries_were_flushed(
    sizes: list[int], flags: int, data: st.DataObject
) -> None:
    entries = journal_of(sizes, flags=flags)
    damaged = data.draw(st.integers(0, len(entries) - 2), "damaged entry")
    start = len(b"".join(entries[:damaged]))
    at = start + data.draw(st.integers(0, len(entries[damaged]) - 1), "damaged byte")
    file = bytearray(stored(entries))
    file[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    found, end = read_entries(bytes(file), Reference(IDENTITY, 0))
    assert (len(found), end) == (damaged, start)
    assert find_lost_entry(bytes(file), IDENTITY, damaged) == (damaged + 1, flags)
    if flags:
        with pytest.raises(
            JournalDamagedError, match=f"commit {damaged} at position {start}, although the later commit"
        ):
            load_entries(bytes(file), IDENTITY, "/data")
    else:
        assert load_entries(bytes(file), IDENTITY, "/data") == found


def test_the_warning_about_a_lost_entry_names_the_first_lost_commit(caplog: pytest.LogCaptureFixture) -> None:
    entries = journal_of([10, 10, 10], flags=0)
    entries[1] = bytes(len(entries[1]))
    assert [one.number for one in load_entries(stored(entries), IDENTITY, "/data")] == [0]
    (message,) = caplog.messages
    assert "although the later commit 2 is undamaged" in message
    assert "The log keeps all commits before commit 1; commit 1 and all later ones are lost." in message


def test_a_round_that_does_not_follow_its_predecessor_ends_the_journal() -> None:
    first = entry(0, b"")
    for second in (entry(0, b""), entry(2, b"", flags=0), entry(1, b"", OTHER)):
        assert [one.number for one in load_entries(stored([first, second]), IDENTITY, "/data")] == [0]
    assert entry_at(stored([]), 0) is None, "zeros are no entry of any journal"
    assert entry_at(first[:-1], 0) is None
    assert entry_at(first, -1, IDENTITY) is None


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 25])
def test_an_entry_that_ends_within_a_batch_is_damaged(cut: int) -> None:
    batches = encoded([(1, 2, b"x" * 10)])
    with pytest.raises(JournalDamagedError, match="round 4 ends within"):
        list(iter_batches(batches, 0, cut, "round 4"))
    assert list(iter_batches(batches, 0, len(batches), "round 4")) == [(1, 2, b"x" * 10)]


def test_a_write_that_the_system_divides_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = JournalFile(str(tmp_path), True)
    file.prepare()
    real = os.pwrite
    monkeypatch.setattr(journal_file.os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:7], at))
    data = bytes(range(100))
    file.write(data, 50)
    assert file.read(200, 0) == bytes(50) + data + bytes(50)
    file.close()


class Writes:
    """Records (position, size) of all writes to files. Raises an exception in place of write number `failing`, counted
    from 0.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, int]] = []
        self.failing = -1
        self.failure: BaseException = KeyboardInterrupt()
        self._real = os.pwrite
        patch.setattr(journal_file.os, "pwrite", self.write)

    def write(self, fd: int, data: bytes, at: int) -> int:
        if len(self.made) == self.failing:
            self.failing = -1
            raise self.failure
        self.made.append((at, len(data)))
        return self._real(fd, data, at)


@pytest.mark.parametrize("before", [b"", b"x" * 1_179_648, b"x" * 2_300_001], ids=["new", "one area", "odd size"])
def test_the_missing_part_of_a_file_is_filled_in_short_writes(
    before: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal file is filled with zeros in writes of 64 KiB. A single write of 2 MiB would make every later commit
    1.5 µs slower, because Linux would keep the file in one large folio.
    """
    path = tmp_path / "journal"
    path.write_bytes(before)
    writes = Writes(monkeypatch)
    file = JournalFile(str(tmp_path), True)
    file.prepare()
    file.close()
    starts = range(len(before), JOURNAL_BYTES, 65_536)
    assert writes.made == [(at, min(65_536, JOURNAL_BYTES - at)) for at in starts]
    assert path.read_bytes() == before.ljust(JOURNAL_BYTES, b"\0")


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), MemoryError(), OSError(5, "injected")], ids=repr)
def test_a_file_that_was_filled_in_part_is_completed_by_the_next_opening(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new journal file is filled in several writes. In turn, each write fails, and the next call of `prepare`
    completes the file.
    """
    writes = Writes(monkeypatch)
    writes.failure = failure
    path = tmp_path / "journal"
    for number in range(JOURNAL_BYTES // 65_536):
        writes.made, writes.failing = [], number
        file = JournalFile(str(tmp_path), True)
        with pytest.raises(type(failure)):
            file.prepare()
        assert (file.usable, path.stat().st_size) == (False, number * 65_536)
        file.prepare()
        assert file.usable
        file.close()
        assert path.read_bytes() == bytes(JOURNAL_BYTES)
        path.unlink()


# ---- power failures


class Device:
    """A simulated device behind the page cache. It has the flushed bytes, and any sectors of the unflushed bytes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.flushed = bytearray(JOURNAL_BYTES)
        self.pending: list[tuple[int, bytes]] = []

    def write(self, data: bytes, at: int) -> None:
        self.pending.append((at, bytes(data)))

    def flush(self) -> None:
        for at, data in self.pending:
            self.flushed[at : at + len(data)] = data
        self.pending = []

    def after_power_failure(self) -> bytes:
        content = bytearray(self.flushed)
        for at, data in self.pending:
            for start in range(at - at % SECTOR_BYTES, at + len(data), SECTOR_BYTES):
                low, high = max(start, at), min(start + SECTOR_BYTES, at + len(data))
                if self._chance.random() < 0.5:
                    content[low:high] = data[low - at : high - at]
        return bytes(content)


@contextmanager
def recorded(device: Device) -> Iterator[None]:
    """Sends the writes and flushes of every journal file to the simulated device, too."""
    real_write, real_sync = journal_file._write_all, journal_file._sync

    def write(fd: int, data: bytes, at: int) -> None:
        real_write(fd, data, at)
        device.write(data, at)

    def sync(fd: int, how: object) -> None:
        real_sync(fd, how)  # type: ignore[arg-type]
        device.flush()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_file, "_write_all", write)
        patch.setattr(journal_file, "_sync", sync)
        yield


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("durability", ["fsync", "os"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 32), rounds=st.integers(1, 30), max_rounds=st.integers(2, 6))
def test_a_power_failure_loses_no_flushed_round_and_shows_none_in_part(
    durability: str, beside: bool, seed: int, rounds: int, max_rounds: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Power fails while a round is written: before, during or after its flush. With `beside`, full areas are moved to
    the log at random later times, while the other area receives the next rounds.

    With `fsync`, every acknowledged round survives. With `os`, a prefix of these rounds survives. The test does not
    damage LMDB's file, so a round that was moved to this file is never lost.
    """
    chance = random.Random(seed)
    device = Device(chance)
    root = tmp_path_factory.mktemp("power")
    with recorded(device), pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MAX_ENTRIES", max_rounds)
        engine = LmdbLogEngine(root / "data", durability, tail_size_bytes=0)
        moves: list[Callable[[], None]] = []
        if beside:
            engine.move_beside(lambda move: moves.append(move) is None)
        logs = [engine.open(key(number)) for number in range(3)]
        written: list[list[bytes]] = [[], [], []]
        for turn in range(rounds):
            while moves and chance.random() < 0.3:
                moves.pop()()
            for log, stored in zip(logs, written, strict=True):
                data = batch(1, chance.choice([10, 300, 2_000]), fill=turn % 256)
                stored.append(stamped(data, log.append(data, 0), 0))
            at_failure = []
            real = journal_file._sync

            def failing(fd: int, how: object, real: object = real, found: list[bytes] = at_failure) -> None:
                found.append(device.after_power_failure())
                real(fd, how)  # type: ignore[operator]

            with pytest.MonkeyPatch.context() as last:
                if turn == rounds - 1:
                    last.setattr(journal_file, "_sync", failing)
                engine.commit()
        crashed = root / "crashed"
        shutil.copytree(root / "data", crashed)
        acknowledged = rounds
        (crashed / "journal").write_bytes(device.after_power_failure())
        check_recovered(crashed, written, acknowledged if durability == "fsync" else 0, rounds)
        for content in at_failure[:1]:  # in the last commit's flush
            shutil.rmtree(crashed)
            shutil.copytree(root / "data", crashed)
            (crashed / "journal").write_bytes(content)
            check_recovered(crashed, written, rounds - 1, rounds)
        engine.close()
    shutil.rmtree(root)


def check_recovered(folder: Path, written: list[list[bytes]], least: int, most: int) -> None:
    """Opens a folder and checks that it has a prefix of the rounds, each with all its partitions."""
    engine = LmdbLogEngine(folder)
    found = [contents(engine.open(key(number))) for number in range(len(written))]
    count = len(found[0])
    assert found == [stored[:count] for stored in written]
    assert least <= count <= most
    assert engine.verify(deep=True) == []
    engine.close()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_any_damage_of_the_file_is_refused_or_leaves_a_prefix(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The engine refuses a journal with damage before its last round. Damage of the last round looks like an
    interrupted write, so the engine opens without this round.
    """
    chance = random.Random(seed)
    root = tmp_path_factory.mktemp("damage")
    engine = LmdbLogEngine(root / "data", tail_size_bytes=0)
    log = engine.open(key())
    written = []
    ends = []
    for turn in range(6):
        data = batch(1, chance.choice([10, 3_000]), fill=turn + 1)
        written.append(stamped(data, log.append(data, 0), 0))
        engine.commit()
        ends.append(engine._storage._journal._areas[-1].size_bytes)  # type: ignore[attr-defined]
    shutil.copytree(root / "data", root / "crashed")
    engine.close()
    file = root / "crashed" / "journal"
    before = file.read_bytes()
    content = bytearray(before)
    start = chance.randrange(ends[-1])
    length = chance.choice([1, 50, SECTOR_BYTES])
    content[start : start + length] = bytes(length) if chance.random() < 0.5 else chance.randbytes(length)
    file.write_bytes(content)
    first = next((at for at in range(ends[-1]) if content[at] != before[at]), ends[-1])
    last = next((at for at in reversed(range(ends[-1])) if content[at] != before[at]), ends[-1])
    sound = sum(end <= first for end in ends)
    if last < ends[-2]:  # the last entry is sound
        with pytest.raises(DataFolderError) as refused:
            LmdbLogEngine(root / "crashed")
        assert refused.value.where == "journal"
    else:
        again = LmdbLogEngine(root / "crashed")
        assert contents(again.open(key())) == written[:sound]
        again.close()
    shutil.rmtree(root)
