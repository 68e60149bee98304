"""A repair keeps or lists every record: random damage of a folder of small batches, large batches and a journal."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from kcore.log import LmdbLogEngine, PartitionKey, PartitionLog, verify_folder
from kcore.log.batch_header import last_offset, leader_epoch
from kcore.log.lmdb_layout import LOG_KEY
from kcore.log.lmdb_salvage import Salvage, _sound_entries
from kcore.log.repair import repair_folder
from kcore.log.repair_partition import Loss
from kcore.protocol.batch_layout import HEADER_BYTES
from tests.log.batches import AnyRecords, batch, key, stamped
from tests.seeds import first_of

PAGE = 4096
PARTITIONS = 3
COMMITS = 700


class Original(NamedTuple):
    """The files before the damage, and the batches by partition and base offset, and the ends of
    compaction.
    """

    data: bytes
    journal: bytes
    batches: dict[PartitionKey, dict[int, bytes]]
    cleaned_to: dict[PartitionKey, int]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Returns the files that `kill -9` leaves: most batches share values, and the journal has the newest batches.

    The last partition was compacted, and its first batches were deleted. One more partition was dropped.
    """
    folder = tmp_path_factory.mktemp("original") / "data"
    engine = LmdbLogEngine(folder, "fsync")
    logs = {key(partition): engine.open(key(partition)) for partition in range(PARTITIONS + 1)}
    engine.commit()
    batches: dict[PartitionKey, dict[int, bytes]] = {one: {} for one in logs}
    chance = random.Random(1)
    for number in range(COMMITS):
        for one, log in logs.items():
            if chance.random() < 0.6:
                size_bytes = 5_000 if chance.random() < 0.01 else chance.randrange(40, 200)
                records = chance.randrange(1, 4)
                data = batch(records, size_bytes, fill=number % 251)
                base = log.append(data, number // 300)
                batches[one][base] = stamped(data, base, number // 300)
        engine.commit()
        if number == COMMITS // 3:
            engine.drop(key(PARTITIONS))
            del logs[key(PARTITIONS)], batches[key(PARTITIONS)]
            engine.commit()
        if number == COMMITS // 2:
            compact(engine, logs[key(PARTITIONS - 1)], batches[key(PARTITIONS - 1)])
    while engine.reclaim(100):
        pass
    files = (folder / "data.mdb").read_bytes(), (folder / "journal").read_bytes()
    ends = {one: log.cleaned_to for one, log in logs.items()}
    engine.close()
    return Original(*files, batches, ends)


def compact(engine: LmdbLogEngine, log: PartitionLog, batches: dict[int, bytes]) -> None:
    """Deletes the first 20 batches of a partition, then removes or shortens some of the next batches."""
    bases = list(batches)
    log.delete_before(bases[20])
    for base in bases[:20]:
        del batches[base]
    changes: dict[int, bytes | None] = {}
    for base in bases[20:160:3]:
        changes[base] = None
        del batches[base]
    for base in bases[21:160:6]:
        records = last_offset(batches[base]) - base + 1
        changes[base] = batches[base] = stamped(batch(records, 30, fill=7), base, leader_epoch(batches[base]))
    log.rewrite(changes, bases[160])
    engine.commit()


def damaged(original: Original, chance: random.Random, kind: str) -> tuple[bytes, bytes]:
    """Returns the data file and the journal after damage of a kind."""
    data, journal = bytearray(original.data), bytearray(original.journal)
    pages = range(2, len(data) // PAGE)
    if kind == "cut":
        del data[chance.randrange(2 * PAGE, len(data)) :]
    elif kind == "page":
        at = chance.choice(pages) * PAGE
        data[at : at + PAGE] = bytes(PAGE)
    elif kind == "sector":
        at = chance.randrange(2 * PAGE, len(data)) // 512 * 512
        data[at : at + 512] = bytes(512)
    elif kind == "metadata":
        at = chance.choice([page * PAGE for page in pages if b"partition:" in data[page * PAGE : (page + 1) * PAGE]])
        data[at : at + PAGE] = bytes(PAGE)
    elif kind == "values":
        for _ in range(chance.randrange(1, 6)):
            one = chance.choice(list(original.batches))
            batches = original.batches[one]
            at = data.find(batches[chance.choice(list(batches))])
            if at >= 0:
                data[at + chance.randrange(100)] ^= 1 << chance.randrange(8)
    elif kind == "keys":
        for _ in range(chance.randrange(1, 4)):
            partition = chance.randrange(PARTITIONS)
            base = chance.choice(list(original.batches[key(partition)]))
            at = data.find(LOG_KEY.pack(partition, base) + struct.pack(">Q", base))
            if at >= 0:
                data[at + chance.randrange(LOG_KEY.size)] ^= 1 << chance.randrange(8)
    if chance.random() < 0.5:
        journal[:] = bytes(len(journal))
    return bytes(data), bytes(journal)


def read(folder: Path) -> dict[PartitionKey, dict[int, bytes]]:
    engine = LmdbLogEngine(folder, "os", create=False)
    logs = {one: engine.get(one) for one in engine.partitions()}
    found = {one: dict(log.batches()) for one, log in logs.items() if log is not None}
    engine.close()
    return found


def is_listed(losses: list[Loss], one: PartitionKey, base: int, last: int) -> bool:
    """Returns True if the losses have all offsets of a batch, as a loss of its partition or of an unknown partition."""
    missing = set(range(base, last + 1))
    for loss in losses:
        if loss.from_offset is not None and (loss.partition == one or loss.kind == "orphan"):
            end = last + 1 if loss.to_offset is None else loss.to_offset
            missing -= set(range(max(base, loss.from_offset), min(last + 1, end)))
    return not missing


def check(original: Original, journal: bytes, folder: Path, losses: list[Loss]) -> list[str]:
    """Returns the batches that are neither in the repaired folder nor listed, and the false batches.

    A batch at the end of any partition may also be lost if the losses say so. A batch in the journal must be kept,
    unless compaction may have removed it.
    """
    repaired = read(folder)
    entries = b"".join(journal[entry.start : entry.end] for entry, _ in _sound_entries(journal))
    may_lose_ends = any(loss.partition is None and loss.kind == "end" for loss in losses)
    wrong = []
    for one, batches in original.batches.items():
        found = repaired.get(one, {})
        end = max((last_offset(data) for data in found.values()), default=-1)
        for base, data in batches.items():
            if base in found and found[base][16:] == data[16:]:
                continue
            if one in repaired and data in entries and base >= original.cleaned_to.get(one, 0):
                wrong.append(f"{one.partition}: {base} is in the journal, but is not kept")
            elif may_lose_ends and (base > end if one in repaired else data not in entries):
                continue
            elif not is_listed(losses, one, base, last_offset(data)):
                wrong.append(f"{one.partition}: {base} is lost")
        wrong += [
            f"{one.partition}: {base} is false"
            for base, data in found.items()
            if len(data) != HEADER_BYTES and (base not in batches or data[16:] != batches[base][16:])
        ]
    return wrong


KINDS = ("cut", "page", "sector", "metadata", "values", "keys")


def wrong_after_repair(original: Original, folder: Path, data: bytes, journal: bytes) -> list[str]:
    """Repairs a folder with damaged files. Returns the results of `check` and of a verification of the folder."""
    folder.mkdir()
    (folder / "data.mdb").write_bytes(data)
    (folder / "journal").write_bytes(journal)
    if refuses(folder):
        return []  # only meta pages were left
    repair = repair_folder(str(folder), AnyRecords)
    return check(original, journal, folder, repair.losses) + [str(each) for each in verify_folder(folder, deep=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first_of(range(8), 3))
def test_a_repair_keeps_or_lists_every_record(original: Original, tmp_path: Path, kind: str, seed: int) -> None:
    data, journal = damaged(original, random.Random(f"{kind} {seed}"), kind)
    assert wrong_after_repair(original, tmp_path / "data", data, journal) == []


@pytest.mark.parametrize("part", range(1, 20))
def test_a_repair_of_a_cut_file_keeps_or_lists_every_record(original: Original, tmp_path: Path, part: int) -> None:
    """The file is cut at 19 lengths, most of them within a page."""
    size = len(original.data) * part // 20
    assert wrong_after_repair(original, tmp_path / "data", original.data[:size], original.journal) == []


def refuses(folder: Path) -> bool:
    """Returns True if nothing of a data file can be read, so that a repair refuses the folder."""
    salvage = Salvage(str(folder), scan=True)
    salvage.close()
    return not salvage.log and not salvage.meta
