"""Durability `fsync` survives the loss of power: acknowledged writes exist, although unflushed bytes are lost.

A file system on a loop device stands for the disk. While a process commits, the test stops it and copies the bytes of
the device. As after a power cut, the copy lacks everything that was only in the page cache. Then the test mounts the
copy, for which the file system replays its journal, and opens the log. The tests need root.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kcore.log import DataFolderError, LmdbLogEngine
from tests.log.batches import contents, key

ROOT = Path(__file__).parents[2]
IMAGE_BYTES = 48 << 20

WORKER = """
import os, sys
from kcore.drivers.log_threads import JournalMover
from kcore.log import LmdbLogEngine, journal
from tests.log.batches import batch, key
journal.MAX_ENTRIES = 8
engine = LmdbLogEngine(sys.argv[1], sys.argv[2], map_size_bytes=1 << 18)
mover = JournalMover(engine)
logs = [engine.open(key(number)) for number in range(4)]
turn = 0
while True:
    for number, log in enumerate(logs):
        log.append(batch(1, 900 * number, fill=turn % 256), 0)
    if turn % 10 == 9:
        logs[0].delete_before(turn - 5)
    engine.commit()
    turn += 1
    os.write(1, f"{turn}\\n".encode())
    if turn % 10 == 5:
        engine.reclaim(5)
"""


@contextmanager
def mounted(image: Path, where: Path) -> Iterator[Path]:
    where.mkdir(exist_ok=True)
    # The file system commits its journal at no fixed time: only bytes that the log flushes reach the device.
    done = subprocess.run(["mount", "-o", "loop,commit=300", str(image), str(where)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"may not mount: {done.stderr.decode()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def power_cuts(tmp_path: Path, durability: str, cuts: list[int]) -> list[tuple[Path, int]]:
    """Yields images of the device after about `cuts` acknowledged commits, each with the exact number of acknowledged
    commits.
    """
    image = tmp_path / "disk"
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    images = []
    with mounted(image, tmp_path / "mnt") as where:
        os.sync()
        command = [sys.executable, "-c", WORKER, str(where / "data"), durability]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, bufsize=0)
        assert worker.stdout is not None
        received = b""
        try:
            for cut in cuts:
                while received.count(b"\n") < cut:
                    assert select.select([worker.stdout], [], [], 60)[0], "the worker commits nothing"
                    received += os.read(worker.stdout.fileno(), 4096)
                acknowledged = received.count(b"\n")
                worker.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
                copy = tmp_path / f"cut-{cut}"
                shutil.copyfile(image, copy)
                images.append((copy, acknowledged))
                worker.send_signal(signal.SIGCONT)
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
    return images


@pytest.fixture
def needs_root() -> None:
    if os.geteuid() or not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        pytest.skip("needs root, loop devices and mkfs.ext4")


@pytest.mark.crash
@pytest.mark.usefixtures("needs_root")
def test_rounds_acknowledged_with_fsync_survive_a_power_failure(tmp_path: Path) -> None:
    for image, acknowledged in power_cuts(tmp_path, "fsync", [1, 40, 111, 300]):
        with mounted(image, tmp_path / "after") as where:
            engine = LmdbLogEngine(where / "data")
            logs = [engine.open(key(number)) for number in range(4)]
            end = logs[0].end_offset
            assert end >= acknowledged
            assert [log.end_offset for log in logs] == [end] * 4
            assert len(contents(logs[3])) == end
            assert engine.verify(deep=True) == []
            engine.close()
        image.unlink()


@pytest.mark.crash
@pytest.mark.usefixtures("needs_root")
def test_the_simulated_power_cut_loses_unflushed_rounds(tmp_path: Path) -> None:
    """Checks the simulation itself. With durability `os`, the same power cut loses acknowledged commits, or the engine
    cannot open the folder.
    """
    ((image, acknowledged),) = power_cuts(tmp_path, "os", [300])
    with mounted(image, tmp_path / "after") as where:
        try:
            engine = LmdbLogEngine(where / "data", create=False)
        except DataFolderError:
            return
        log = engine.get(key())
        assert log is None or log.end_offset < acknowledged
        engine.close()
