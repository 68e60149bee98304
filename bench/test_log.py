"""The partition log: commits compared with a bare append + fdatasync, reads from memory and from the storage, scans.

Compare figures within one run only. The table of each benchmark group contains a baseline. A round is one commit.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from crc32c import crc32c

from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, PartitionKey, PartitionLog

TOPIC = bytes(range(16))
BATCH_BYTES = 200
SCAN_BATCHES = 20_000


def make_batch(size_bytes: int = BATCH_BYTES) -> bytearray:
    """Makes a batch of one record with a valid header and CRC."""
    rest = struct.pack(">hiqqqhii", 0, 0, 0, 1000, -1, -1, -1, 1) + bytes(size_bytes - 61)
    return bytearray(struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, crc32c(rest)) + rest)


def open_engine(durability: str, folder: Path, **kwargs: Any) -> LogEngine:
    return MemoryLogEngine() if durability == "memory" else LmdbLogEngine(folder, durability, **kwargs)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields a folder on the disk of the working directory, because /tmp may be in memory."""
    path = Path(f".bench-log-{os.getpid()}")
    path.mkdir()
    yield path / "data"
    for file in sorted(path.glob("**/*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    path.rmdir()


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
@pytest.mark.parametrize(("batches", "partitions"), [(1, 1), (10, 1), (10, 10), (100, 1), (100, 10)])
def test_commit(benchmark: Any, folder: Path, durability: str, batches: int, partitions: int) -> None:
    benchmark.group = f"commit of {batches} x {BATCH_BYTES} B: {durability}"
    engine = open_engine(durability, folder)
    logs = [engine.open(PartitionKey(TOPIC, number)) for number in range(partitions)]
    engine.commit()
    data = make_batch()
    order = [logs[at % partitions] for at in range(batches)]

    def commit() -> None:
        for log in order:
            log.append(data, 0)
        engine.commit()

    benchmark.pedantic(commit, **rounds(durability, batches))
    engine.close()


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("batches", [1, 10, 100])
def test_commit_baseline_file(benchmark: Any, folder: Path, durability: str, batches: int) -> None:
    """Measures the baseline of a commit: an append to a file in one write, with fdatasync for durability `fsync`."""
    benchmark.group = f"commit of {batches} x {BATCH_BYTES} B: {durability}"
    data = bytes(make_batch())
    folder.parent.mkdir(exist_ok=True)
    with open(folder, "ab", buffering=0) as file:

        def commit() -> None:
            file.write(b"".join([data] * batches))
            if durability == "fsync":
                os.fdatasync(file.fileno())

        benchmark.pedantic(commit, **rounds(durability, batches))


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("batches", [1, 10, 100])
def test_commit_baseline_lmdb(benchmark: Any, folder: Path, durability: str, batches: int) -> None:
    """Measures the baseline of a commit with LMDB alone: begin, put, commit."""
    benchmark.group = f"commit of {batches} x {BATCH_BYTES} B: {durability}"
    folder.mkdir()
    sync = durability == "fsync"
    data = bytes(make_batch())
    pack = struct.Struct(">IQ").pack
    with lmdb.open(str(folder), map_size=1 << 30, max_dbs=8, sync=sync, metasync=sync) as env:
        db = env.open_db(b"log")
        at = 0

        def commit() -> None:
            nonlocal at
            with env.begin(write=True, db=db) as txn:
                for _ in range(batches):
                    at += 1
                    txn.put(pack(0, at), data, overwrite=False)

        benchmark.pedantic(commit, **rounds(durability, batches))


def rounds(durability: str, batches: int) -> dict[str, int]:
    """Returns the arguments of `pedantic` for a run of about half a second."""
    count = 1500 if durability == "fsync" else max(20_000 // batches, 500)
    return {"rounds": count, "warmup_rounds": 20}


@pytest.fixture(params=["memory", "lmdb"])
def filled(request: pytest.FixtureRequest, folder: Path) -> Iterator[PartitionLog]:
    """Yields a log of SCAN_BATCHES batches. The LMDB log was reopened, so that its tail is empty."""
    memory = MemoryLogEngine()
    engine: LogEngine = memory if request.param == "memory" else LmdbLogEngine(folder, "os")
    log = engine.open(PartitionKey(TOPIC, 0))
    for at in range(SCAN_BATCHES):
        log.append(make_batch(), 0)
        if at % 500 == 499:
            engine.commit()
    engine.close()
    engine = MemoryLogEngine(memory.storage) if request.param == "memory" else LmdbLogEngine(folder, "os")
    yield engine.open(PartitionKey(TOPIC, 0))
    engine.close()


@pytest.mark.parametrize("max_bytes", [1, 64 << 10, 1 << 20])
def test_read_from_storage(benchmark: Any, filled: PartitionLog, max_bytes: int) -> None:
    benchmark.group = f"read {max_bytes} B"
    benchmark.pedantic(lambda: filled.read(SCAN_BATCHES // 2, max_bytes), rounds=2000, warmup_rounds=10)


@pytest.mark.parametrize("max_bytes", [1, 64 << 10])
def test_read_from_tail(benchmark: Any, folder: Path, max_bytes: int) -> None:
    benchmark.group = f"read {max_bytes} B"
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(PartitionKey(TOPIC, 0))
    for _ in range(1000):
        log.append(make_batch(), 0)
    engine.commit()
    benchmark.pedantic(lambda: log.read(500, max_bytes), rounds=5000, warmup_rounds=10)
    engine.close()


SCANS: dict[str, Callable[[PartitionLog], int]] = {
    "checked": lambda log: sum(1 for _ in log.batches()),
    "crc unchecked": lambda log: sum(1 for _ in log.batches(check_crc=False)),
    "max timestamp": lambda log: log._index().size_bytes(0, log.high_watermark),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("scan", SCANS)
def test_scan(benchmark: Any, filled: PartitionLog, scan: str) -> None:
    benchmark.group = f"scan of {SCAN_BATCHES} batches"

    def run() -> int:
        filled._time_index = None  # type: ignore[attr-defined]
        return SCANS[scan](filled)

    assert benchmark.pedantic(run, rounds=5, warmup_rounds=1) >= SCAN_BATCHES
