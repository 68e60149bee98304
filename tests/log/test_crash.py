"""SIGKILL ends a process that commits in a loop: each acknowledged commit exists, and no commit exists in part."""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.log import DataFolderError, LmdbLogEngine, MemoryLogEngine, MemoryStorage
from kcore.log.faults import FaultInjectingEngine, SimulatedCrashError
from tests.log.batches import batch, contents, key
from tests.seeds import SEED

ROOT = Path(__file__).parents[2]

WORKER = """
import os, sys
from kcore.log import LmdbLogEngine
from tests.log.batches import batch, key
engine = LmdbLogEngine(sys.argv[1], sys.argv[2], map_size_bytes=1 << 16)
logs = [engine.open(key(number)) for number in range(3)]
turn = logs[0].end_offset
while True:
    for number, log in enumerate(logs):
        log.append(batch(1, 400 * number, fill=turn % 256), engine.node_epoch)
    engine.put_meta("turn", str(turn + 1).encode())
    if turn % 20 == 19:
        for log in logs[:2]:
            log.delete_before(turn - 10)
        engine.drop(key(100 + turn - 20))
        engine.open(key(100 + turn))
    engine.commit()
    turn += 1
    os.write(1, f"{turn}\\n".encode())
    if turn % 20 == 10:
        engine.reclaim(7)
"""


def run_until_killed(folder: Path, durability: str, lines: int) -> int:
    """Starts the worker, and kills it after about `lines` acknowledged commits. Returns the last
    acknowledged commit.
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), durability], stdout=subprocess.PIPE, cwd=ROOT, bufsize=0
    )
    assert worker.stdout is not None
    received = b""
    try:
        while received.count(b"\n") < lines:
            ready, _, _ = select.select([worker.stdout], [], [], 60)
            assert ready, "the worker commits nothing"
            data = os.read(worker.stdout.fileno(), 4096)
            assert data, "the worker ended by itself"
            received += data
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        received += worker.stdout.read()
        worker.stdout.close()
    return int(received[: received.rindex(b"\n")].split(b"\n")[-1])


@pytest.mark.seeded
@pytest.mark.crash
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_acknowledged_rounds_survive_kill_9_and_no_round_is_partial(folder: Path, durability: str) -> None:
    print(f"KCORE_SEED={SEED}")
    chance = random.Random(SEED)
    for opening in range(4):
        acknowledged = run_until_killed(folder, durability, chance.randrange(1, 150))
        engine = LmdbLogEngine(folder, durability)
        try:
            assert engine.node_epoch == 2 * opening + 1
            logs = [engine.open(key(number)) for number in range(3)]
            end = logs[0].end_offset
            # One commit may be durable although its acknowledgement was not written.
            assert acknowledged <= end <= acknowledged + 1
            assert [log.end_offset for log in logs] == [end] * 3
            assert engine.get_meta("turn") == str(end).encode()
            assert len(engine.partitions()) == 3 + (end >= 20)
            assert len(contents(logs[2])) == end
            assert engine.verify(deep=True) == []
            assert not engine.dirty
        finally:
            engine.close()


@pytest.mark.crash
def test_the_lock_of_a_killed_process_is_free_and_the_error_names_a_live_holder(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next opening logs that the process has not closed the folder; the opening after that one logs nothing."""
    caplog.set_level(logging.INFO, "kcore.log")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom kcore.log import LmdbLogEngine\n"
            "e = LmdbLogEngine(sys.argv[1]); print('open', flush=True); sys.stdin.read()",
            str(folder),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(DataFolderError, match=f"in use by process {holder.pid};") as refused:
            LmdbLogEngine(folder)
        assert (refused.value.path, refused.value.where) == (folder, "kcore.lock")
    finally:
        holder.kill()
        holder.communicate()
    for node_epoch in (1, 2):
        engine = LmdbLogEngine(folder)
        assert engine.node_epoch == node_epoch
        engine.close()
    assert caplog.messages == [
        f"log {folder}: process {holder.pid} ended without closing the folder, as after SIGKILL or a crash of the "
        "machine; kcore checks the data file, and continues with the committed writes"
    ]


@pytest.mark.parametrize("after", [False, True])
def test_a_round_survives_a_simulated_crash_only_after_its_commit_point(folder: Path, after: bool) -> None:
    for restart in ("memory", "lmdb"):
        memory = MemoryStorage()

        def open_engine(memory: MemoryStorage = memory, restart: str = restart) -> FaultInjectingEngine:
            inner = MemoryLogEngine(memory) if restart == "memory" else LmdbLogEngine(folder, "os")
            return FaultInjectingEngine(inner)

        engine = open_engine()
        log = engine.open(key())
        log.append(batch(2), 0)
        engine.crash_commit(2, after)
        engine.commit()
        log.append(batch(3), 0)
        with pytest.raises(SimulatedCrashError):
            engine.commit()
        engine = open_engine()
        assert engine.open(key()).end_offset == (5 if after else 2)
        engine.close()
