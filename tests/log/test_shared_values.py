"""Small batches of the journal share values of the log: reads, compaction, retention, checks and repair."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterable
from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.log import CorruptLogError, LmdbLogEngine, LogError, verify_folder
from kcore.log.repair import repair_folder
from kcore_ext.log.journal import MAX_VALUE_BYTES, log_pairs, sort_batches
from tests.log.batches import AnyRecords, batch, contents, key, split, stamped

COUNT = 120


def entry_of(batches: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Returns entry 7 of a journal with the batches, which are given as (partition number, base offset, bytes)."""
    data = b"".join(struct.pack(">IQI", number, base, len(batch)) + batch for number, base, batch in batches)
    return struct.pack(">IIII16x", 0, len(data), 7, 0) + data


@given(st.lists(st.lists(st.integers(61, 3 * MAX_VALUE_BYTES // 2), max_size=12), max_size=4))
def test_consecutive_batches_fill_values_up_to_the_limit(sizes: list[list[int]]) -> None:
    by_number = {
        3 * number: [(10 * place, bytes([number]) * size) for place, size in enumerate(batches)]
        for number, batches in enumerate(sizes)
    }
    entries = [
        entry_of((number, *batches[place]) for number, batches in by_number.items() if place < len(batches))
        for place in range(12)
    ]
    expected: list[tuple[bytes, bytes]] = []
    for number, batches in by_number.items():
        group: list[tuple[int, bytes]] = []
        for base, data in [*batches, (0, bytes(MAX_VALUE_BYTES))]:
            if group and sum(len(each) for _, each in group) + len(data) > MAX_VALUE_BYTES:
                expected.append((struct.pack(">IQ", number, group[0][0]), b"".join(each for _, each in group)))
                group = []
            group.append((base, data))
    firsts = [(number, 0) for number, batches in by_number.items() if batches]
    assert log_pairs(entries) == (expected, firsts, sum(16 + size for batches in sizes for size in batches))
    assert log_pairs([*entries[::-1], *entries]) == log_pairs(entries), "a batch counts once"


@given(st.integers(0, 32 + 2 * (16 + 61) - 1))
def test_an_entry_that_ends_within_a_batch_is_refused(size: int) -> None:
    entry = entry_of([(1, 0, bytes(61)), (2, 5, bytes(61))])[:size]
    if size in (32, 32 + 16 + 61):
        assert log_pairs([entry])[1] == [(1, 0)][: size > 32]
        return
    error = f"entry 7 ends within a batch, after {(size - 32) % (16 + 61)} bytes"
    if size < 32:
        error = f"an entry of {size} bytes; the head alone has 32 bytes"
    for read in (log_pairs, lambda entries: sort_batches(entries, {})):
        with pytest.raises(ValueError, match=f"^{error}$"):
            read([entry])


@pytest.fixture
def stored(folder: Path) -> list[bytes]:
    """Makes a closed folder with `COUNT` batches of two records, which share values. Returns the batches."""
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    engine.commit()
    batches = []
    for number in range(COUNT):
        data = batch(2, 60, fill=number)
        batches.append(stamped(data, log.append(data, 0), 0))
        engine.commit()
    engine.close()
    assert max(values(folder)) > 10, "many batches share a value"
    return batches


def values(folder: Path) -> list[int]:
    """Returns the number of batches in each value of the log."""
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin() as txn:
        return [len(split(value)) for _, value in txn.cursor(env.open_db(b"log", txn=txn, create=False))]


def test_every_offset_is_found(folder: Path, stored: list[bytes]) -> None:
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    assert contents(log) == stored
    for offset in range(2 * COUNT):
        for max_bytes in (0, 1):
            assert log.read(offset, max_bytes) == stored[offset // 2 : offset // 2 + 1]
        assert log.summaries(offset, 2)[0][:2] == (offset // 2 * 2, offset // 2 * 2 + 1)
        assert [data for _, data in log.batches(offset, offset + 3)] == stored[offset // 2 : (offset + 4) // 2]
    assert engine.verify(deep=True) == []
    engine.close()


@pytest.mark.parametrize("changed", [range(1), range(3), range(COUNT - 1), range(30, 34), range(0, COUNT - 1, 7)])
def test_compaction_replaces_batches_within_values(folder: Path, stored: list[bytes], changed: range) -> None:
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    smaller = {2 * place: stamped(batch(2, 3, fill=1), 2 * place, 0) for place in changed if place % 2}
    removed = {2 * place: None for place in changed if not place % 2}
    log.rewrite(smaller | removed, 2 * COUNT - 2)
    engine.commit()
    kept = [smaller.get(2 * place, data) for place, data in enumerate(stored) if 2 * place not in removed]
    for _ in range(2):
        assert contents(log) == kept
        assert engine.verify(deep=True) == []
        engine.close()
        engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
        log = engine.open(key())
    engine.close()
    assert sum(values(folder)) == len(kept)


@pytest.mark.parametrize("start", [1, 2, 37, 2 * COUNT - 1, 2 * COUNT])
def test_retention_deletes_whole_values(folder: Path, stored: list[bytes], start: int) -> None:
    deleted = values_below(folder, start)
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    log.delete_before(start)
    engine.commit()
    while engine.reclaim(1):
        pass
    assert contents(log) == stored[start // 2 :]
    assert engine.verify(deep=True) == []
    engine.close()
    assert sum(values(folder)) == COUNT - deleted
    again = LmdbLogEngine(folder, "os")
    assert contents(again.open(key())) == stored[start // 2 :]
    assert again.reclaim(1) is False
    again.close()


def values_below(folder: Path, start: int) -> int:
    """Returns the number of batches in the values whose batches are all below an offset."""
    below = passed = 0
    for count in values(folder):
        passed += count
        if 2 * passed <= start:
            below = passed
    return below


@pytest.mark.parametrize("lost", range(1, 8))
@pytest.mark.parametrize("batches", [1, 3])
def test_a_commit_of_stored_offsets_fails(folder: Path, stored: list[bytes], lost: int, batches: int) -> None:
    """The memory of the process lacks the last batches of the file. No key is equal, because the batches share a value
    with a lower key.
    """
    before = values(folder)
    assert before[-1] > 7
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    log.end_offset = log.high_watermark = 2 * (COUNT - lost)
    for _ in range(batches):
        log.append(batch(2, 300_000 // batches), 0)
    with pytest.raises(CorruptLogError, match="a batch is already stored here") as caught:
        engine.commit()
    assert caught.value.offset == 2 * (COUNT - lost)
    engine.close()
    assert values(folder) == before


def test_a_move_of_stored_offsets_fails(folder: Path, stored: list[bytes]) -> None:
    before = values(folder)
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    engine.put_meta("name", b"before")
    engine.commit()  # begins a journal
    log.end_offset = log.high_watermark = 2 * (COUNT - 2)
    log.append(batch(2, 60), 0)
    engine.commit()
    engine.put_meta("name", b"value")
    with pytest.raises(LogError, match=f"offset {2 * (COUNT - 2)} of partition number 0 is in the log already"):
        engine.commit()
    engine.close()
    assert values(folder) == before


@pytest.mark.parametrize("has_journal", [True, False])
def test_only_the_damaged_batch_of_a_value_is_lost(folder: Path, stored: list[bytes], has_journal: bool) -> None:
    data = bytearray((folder / "data.mdb").read_bytes())
    at = data.index(stored[50])
    data[at + 100] ^= 1
    (folder / "data.mdb").write_bytes(data)
    if not has_journal:
        (folder / "journal").write_bytes(bytes((folder / "journal").stat().st_size))
    (finding,) = verify_folder(folder, deep=True)
    assert (finding.offset, finding.kind) == (100, "crc")
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    assert engine.open(key()).read(98, 1) == stored[49:50]
    with pytest.raises(CorruptLogError):
        contents(engine.open(key()))
    engine.close()
    repair = repair_folder(str(folder), AnyRecords)
    engine = LmdbLogEngine(folder, "os")
    repaired = contents(engine.open(key()))
    engine.close()
    assert repaired[:50] + repaired[51:] == stored[:50] + stored[51:]
    if has_journal:  # it still has a copy of the batch
        assert (repaired[50], repair.losses) == (stored[50], [])
    else:
        assert (len(repaired[50]), len(repair.losses)) == (61, 1), "an empty batch fills the gap"


def test_damaged_headers_hide_no_other_batch(folder: Path, stored: list[bytes]) -> None:
    """The last batch of a value may be damaged, too. Each read then reports it, and no read takes it for a gap."""
    data = (folder / "data.mdb").read_bytes()
    for place in range(40, 60):
        (folder / "data.mdb").write_bytes(data.replace(stored[place], bytes(61) + stored[place][61:]))
        engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
        log = engine.open(key())
        for offset in range(80, 120):
            if offset // 2 == place:
                with pytest.raises(CorruptLogError) as caught:
                    log.read(offset, 1)
                assert caught.value.offset == 2 * place
            else:
                assert log.read(offset, 1) == stored[offset // 2 : offset // 2 + 1]
        following = log.summaries(2 * place, 2)
        assert following[0] == (2 * place, 2 * place + 1, -1, len(stored[place]))
        assert following[1][:2] == (2 * place + 2, 2 * place + 3)
        assert log.summaries(2 * place + 1, 2) == following
        assert [finding.offset for finding in engine.verify(deep=True)] == [2 * place, 2 * place + 1]
        engine.close()


@pytest.mark.parametrize("place", [10, 50, 51, COUNT - 2])
def test_a_batch_that_seems_to_end_above_the_end_of_the_log_is_reported(
    folder: Path, stored: list[bytes], place: int
) -> None:
    """Reads that do not check CRCs compare the offset delta with the end of the log."""
    damaged = stored[place][:23] + struct.pack(">i", (1 << 31) - 1) + stored[place][27:]
    data = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data.replace(stored[place], damaged))
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    for offset in (2 * place, 2 * place + 1):
        with pytest.raises(CorruptLogError) as caught:
            log.read(offset, 1)
        assert caught.value.offset == 2 * place
    assert log.read(2 * place + 2, 1) == [stored[place + 1]]
    with pytest.raises(CorruptLogError) as caught:
        list(log.batches(2 * place, 2 * place + 1, check_crc=False))
    assert caught.value.offset == 2 * place
    engine.close()


def test_summaries_ascend_beside_a_damaged_key(folder: Path, stored: list[bytes]) -> None:
    """The key of the third value is below the last batch of the second value."""
    counts = values(folder)
    assert counts[1] > 5
    base = 2 * sum(counts[:2])
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True) as txn:
        log_db = env.open_db(b"log", txn=txn, create=False)
        assert txn.put(struct.pack(">IQ", 0, base - 5), txn.pop(struct.pack(">IQ", 0, base), db=log_db), db=log_db)
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    found = engine.open(key()).summaries(0, 1_000)
    engine.close()
    offsets = [summary.base_offset for summary in found]
    assert offsets == sorted(set(offsets))
    assert [summary[:2] for summary in found if summary.base_offset < base] == [
        (offset, offset + 1) for offset in range(0, base, 2)
    ]


@pytest.mark.parametrize("has_journal", [True, False])
def test_zeros_over_many_batches_lose_no_other_batch(folder: Path, stored: list[bytes], has_journal: bool) -> None:
    """The journal has copies of the batches under 512 zero bytes. Without them, a repair lists all their offsets."""
    data = bytearray((folder / "data.mdb").read_bytes())
    at = data.index(stored[50])
    lost = [place for place in range(48, 60) if at - 60 < data.index(stored[place]) + len(stored[place]) <= at + 640]
    data[at + 10 : at + 522] = bytes(512)
    lost = [place for place in lost if stored[place] not in data]
    (folder / "data.mdb").write_bytes(data)
    if not has_journal:
        (folder / "journal").write_bytes(bytes((folder / "journal").stat().st_size))
    repair = repair_folder(str(folder), AnyRecords)
    engine = LmdbLogEngine(folder, "os")
    repaired = dict(engine.open(key()).batches())
    engine.close()
    kept = {base: data for base, data in repaired.items() if len(data) > 61}
    expected = {2 * place: data for place, data in enumerate(stored)}
    if has_journal:
        assert (kept, repair.losses) == (expected, [])
    else:
        assert len(lost) == 5
        assert kept == {base: data for base, data in expected.items() if base // 2 not in lost}
        assert [loss[:3] for loss in repair.losses] == [(key(), 2 * lost[0], 2 * lost[-1] + 2)]


@pytest.mark.parametrize("bit", [*range(0, 64, 7), 58, 60, 62])
def test_a_flipped_bit_in_the_last_key_loses_no_batch(folder: Path, stored: list[bytes], bit: int) -> None:
    """The headers of the batches have the right offsets. A repair does not fill the log up to the offset in the key."""
    (folder / "journal").write_bytes(bytes((folder / "journal").stat().st_size))
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True) as txn:
        log_db = env.open_db(b"log", txn=txn, create=False)
        with txn.cursor(log_db) as cursor:
            assert cursor.last()
            last, value = bytes(cursor.key()), bytes(cursor.value())
    assert len(split(value)) > 1
    data = bytearray((folder / "data.mdb").read_bytes())
    for at in [place for place in range(len(data)) if data.startswith(last + value[:8], place)]:
        data[at + 11 - bit // 8] ^= 1 << bit % 8
    (folder / "data.mdb").write_bytes(data)
    repair = repair_folder(str(folder), AnyRecords)
    engine = LmdbLogEngine(folder, "os")
    assert contents(engine.open(key())) == stored
    assert engine.verify(deep=True) == []
    engine.close()
    assert {loss.kind for loss in repair.losses} <= {"page", "end"}


@pytest.mark.parametrize("bit", [0, 3, 40, 62])
def test_a_flipped_bit_in_a_base_offset_loses_no_batch(folder: Path, stored: list[bytes], bit: int) -> None:
    """The key and the neighbours show the right offset of the batch."""
    (folder / "journal").write_bytes(bytes((folder / "journal").stat().st_size))
    data = (folder / "data.mdb").read_bytes()
    for place in (0, 1, 50, 51, COUNT - 1):
        damaged = bytearray(stored[place])
        damaged[7 - bit // 8] ^= 1 << bit % 8
        (folder / "data.mdb").write_bytes(data.replace(stored[place], bytes(damaged)))
        repair = repair_folder(str(folder), AnyRecords)
        engine = LmdbLogEngine(folder, "os")
        assert contents(engine.open(key())) == stored
        engine.close()
        assert (repair.changed, repair.losses) == (True, [])


def test_a_repair_restores_no_deleted_value(folder: Path) -> None:
    """Older pages have the value. The pages of the metadata are undamaged, so they show that it was deleted."""
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    engine.put_meta("name", b"value")
    engine.commit()
    engine.put_meta("name", None)
    log.append(batch(2, 60), 0)
    engine.commit()
    log.append(batch(2, 60), 0)
    engine.commit()
    engine.close()
    data = (folder / "data.mdb").read_bytes()
    assert b"user:name" in data
    last = stamped(batch(2, 60), 2, 0)
    (folder / "data.mdb").write_bytes(data.replace(last, last[:-1] + b"?"))
    (folder / "journal").write_bytes(bytes((folder / "journal").stat().st_size))
    assert len(repair_folder(str(folder), AnyRecords).losses) == 1
    engine = LmdbLogEngine(folder, "os")
    assert engine.get_meta("name") is None
    engine.close()


def test_a_misdirected_write_puts_no_batches_into_another_partition(tmp_path: Path) -> None:
    """The device has written a page to the place of another page. Two partitions have batches of equal sizes and
    offsets, so only the keys show the partition of a batch.
    """
    source = tmp_path / "source"
    engine = LmdbLogEngine(source, "os", tail_size_bytes=0)
    logs = [engine.open(key(partition)) for partition in range(2)]
    engine.commit()
    stored = [
        [stamped(batch(1, 200, fill=place + 128 * partition), place, 0) for place in range(COUNT)]
        for partition in range(2)
    ]
    for pair in zip(*stored, strict=True):
        for log, data in zip(logs, pair, strict=True):
            log.append(data, 0)
        engine.commit()
    engine.close()
    assert max(values(source)) > 1
    data = (source / "data.mdb").read_bytes()
    pages = range(2, len(data) // 4096)
    for at, other in random.Random(5).sample(list(itertools.permutations(pages, 2)), 100):
        folder = tmp_path / f"{at}-{other}"
        folder.mkdir()
        page = struct.pack("=Q", at) + data[other * 4096 + 8 : (other + 1) * 4096]
        (folder / "data.mdb").write_bytes(data[: at * 4096] + page + data[(at + 1) * 4096 :])
        repair_folder(str(folder), AnyRecords)
        engine = LmdbLogEngine(folder, "os")
        for partition, batches in enumerate(stored):
            repaired = engine.get(key(partition))
            for base, found in [] if repaired is None else repaired.batches():
                assert len(found) == 61 or found == batches[base]
        engine.close()
