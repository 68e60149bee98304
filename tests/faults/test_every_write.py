"""Every write of a workload fails once: acknowledged records exist, refused records do not exist, and the node
continues.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, MemoryStorage
from kcore.log.errors import FailureReason
from kcore.log.faults import FaultInjectingEngine
from tests.faults.world import WORKLOAD, World

Reopen = Callable[[], LogEngine]


def memory(_: Path) -> Reopen:
    storage = MemoryStorage()
    return lambda: MemoryLogEngine(storage)


def lmdb(path: Path) -> Reopen:
    return lambda: LmdbLogEngine(path, "os", map_size_bytes=8 << 20)


def run(reopen: Reopen, prepare: Callable[[FaultInjectingEngine], None]) -> tuple[dict[str, Any], list[str], int]:
    """Runs the workload with faults.

    Returns:
        The state at the end, the names of the error codes in responses, and the number of commits.
    """
    log = FaultInjectingEngine(reopen())
    world = World(log)
    prepare(log)
    before = log.commit_count
    for step in WORKLOAD:
        world.retry(step)
    found = world.state()
    commits = log.commit_count - before
    world.close()
    world.open(reopen())
    assert world.state() == found, "a restart changes the state"
    assert world.engine.log.verify(deep=True) == []
    world.close()
    return found, world.refused, commits


@pytest.fixture(scope="module")
def undisturbed() -> tuple[dict[str, Any], int]:
    """Returns the state after the workload without failures, and the number of its commits."""
    found, refused, commits = run(memory(Path()), lambda _: None)
    assert refused == []
    return found, commits


def test_the_undisturbed_workload_gives_the_expected_state(undisturbed: tuple[dict[str, Any], int]) -> None:
    """Checks the result of the undisturbed run, which is the expected result of all other tests."""
    found, commits = undisturbed
    assert commits >= len(WORKLOAD)
    assert found["topics"] == {"t": 1, "u": 3, "deleted-from": 1}
    assert found["records"] == {
        ("t", 0): [b"a", b"b", b"i0", b"i1", b"i2", b"end"],
        ("u", 0): [],
        ("u", 1): [],
        ("u", 2): [b"c"],
        ("deleted-from", 0): [b"2", b"3"],
    }
    assert found["offsets"] == {
        "simple": {("t", 0): 8, ("u", 0): 6},
        "workers": {("t", 0): 3},
        "gone": {},
    }


@pytest.mark.parametrize("store", [memory, lmdb])
@pytest.mark.parametrize("length", [1, 3])
def test_a_failure_of_any_commit_loses_nothing_acknowledged(
    undisturbed: tuple[dict[str, Any], int], store: Callable[[Path], Reopen], length: int, tmp_path: Path
) -> None:
    """For every n, the n-th commit fails, alone or together with the next two: no record is lost or stored twice."""
    expected, commits = undisturbed
    step = 1 if store is memory else 3  # the same code above the storage: on disk every third write
    for nth in range(1, commits + 1, step):

        def prepare(log: FaultInjectingEngine, nth: int = nth) -> None:
            for offset in range(length):
                log.fail_commit(nth + offset, FailureReason.DISK_FULL)

        found, refused, _ = run(store(tmp_path / f"{nth}"), prepare)
        assert refused, f"commit {nth} failed, but no request was refused"
        assert found == expected, f"commit {nth} failed, {length} in a row; refused: {refused}"


def test_a_failed_opening_leaves_a_folder_that_can_be_opened(undisturbed: tuple[dict[str, Any], int]) -> None:
    """A commit during the start fails. The constructor raises, and the next start succeeds."""
    from kcore.errors import KcoreError

    reopen = memory(Path())
    failures = 0
    for nth in range(1, 20):
        log = FaultInjectingEngine(reopen())
        log.fail_commit(nth, FailureReason.DISK_FULL)
        try:
            World(log).close()
        except KcoreError:
            failures += 1
            log.close()
        else:
            break
    assert failures >= 1
    world = World(reopen())
    for step in WORKLOAD:
        world.retry(step)
    assert world.state() == undisturbed[0]
    world.close()


def test_a_failure_of_reclaiming_loses_nothing(undisturbed: tuple[dict[str, Any], int], tmp_path: Path) -> None:
    """A failed reclaiming of disk space is repeated, and requests are not affected."""
    log = FaultInjectingEngine(lmdb(tmp_path / "data")())
    world = World(log)
    log.fail_reclaim(2)
    for step in WORKLOAD:
        world.retry(step)
        world.driver.advance(10_000)
    assert world.state() == undisturbed[0]
    world.close()
