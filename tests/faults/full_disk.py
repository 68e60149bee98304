"""A program in which a node works until its disk is full, gets space again, continues, and is opened again.

    python -m tests.faults.full_disk FOLDER limit        the file may not grow (RLIMIT_FSIZE)
    python -m tests.faults.full_disk FOLDER volume       the volume is full; removing FOLDER/../ballast frees space

Prints the numbers of acknowledged and refused writes. If an acknowledged write is missing, or a refused one exists, the
program ends with a traceback.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from kcore.errors import KcoreError
from kcore.log import LmdbLogEngine
from tests import kit
from tests.faults.world import RETRIABLE, Refused, World, _commit, _produced, topics_made

VALUE_BYTES = 20_000
METADATA = "y" * 4_000
MORE_BYTES = 400_000  # the growth that a limited file may have


def attempt(world: World, step: Callable[..., None]) -> bool:
    """Runs a step. Returns True if it was acknowledged. A refusal must be retriable."""
    try:
        step(world)
    except Refused as error:
        if error.code not in RETRIABLE:
            raise
        return False
    return True


def fill(world: World, acknowledged: list[bytes]) -> int:
    """Produces and commits until both were refused. Returns the number of refusals."""
    refused = {"produce": 0, "commit": 0}
    offset = -1
    for number in range(1_000):
        value = (b"%d-" % number).ljust(VALUE_BYTES, b"x")
        if not attempt(world, _produced("t", kit.batch([value]))):
            refused["produce"] += 1
        else:
            acknowledged.append(value)
        if not attempt(world, lambda w, n=number: _commit(w, kit.commit("simple", {("t", 0): n}, metadata=METADATA))):
            refused["commit"] += 1
        else:
            offset = number
        assert kit.committed(world, "simple") == ({("t", 0): offset} if offset >= 0 else {})
        if refused["produce"] >= 3 and (refused["commit"] >= 3 or refused["produce"] >= 30):
            return sum(refused.values())
    raise AssertionError("the disk never became full")


def main(folder: Path, how: str) -> None:
    """Runs the program on a folder."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    world = World(LmdbLogEngine(folder, "fsync", map_size_bytes=1 << 20))
    world.retry(topics_made)
    acknowledged: list[bytes] = []
    if how == "limit":
        size_bytes = max(file.stat().st_size for file in folder.iterdir())
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + MORE_BYTES, hard))
    refused = fill(world, acknowledged)
    for reader in range(2):  # reading needs no space
        values = world.records("t", 0)
        assert values == acknowledged, f"look {reader}: {len(values)} values, {len(acknowledged)} acknowledged"
    world.close()
    try:  # a start on a full disk succeeds or describes the fault; the test checks the text
        world.open(LmdbLogEngine(folder, "fsync"))
    except KcoreError as error:
        print(f"a start was refused: {error}")
    else:
        assert world.records("t", 0) == acknowledged
        world.close()
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    else:
        (folder.parent / "ballast").unlink()
    world.open(LmdbLogEngine(folder, "fsync"))
    for value in (b"room", b"again"):
        world.retry(_produced("t", kit.batch([value])))
        acknowledged.append(value)
    _commit(world, kit.commit("simple", {("t", 0): 4_711}))
    found = world.state()
    assert found["records"]["t", 0] == acknowledged
    assert found["offsets"]["simple"] == {("t", 0): 4_711}
    world.close()
    world.open(LmdbLogEngine(folder, "fsync"))
    assert world.state() == found
    assert world.engine.log.verify(deep=True) == []
    world.close()
    print(f"acknowledged {len(acknowledged)}, refused {refused}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
