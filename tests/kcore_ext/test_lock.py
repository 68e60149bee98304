"""The compiled locks, which a `with` statement also releases if an allocation fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kcore_ext.util.lock import Lock, RLock
from tests.faults.allocations import require_failing_allocations

FREE_TUPLES = 2_000
"""Number of tuples that a test allocates to empty CPython's list of freed tuples. A tuple from this list needs no
allocation that could fail.
"""


def can_be_acquired_elsewhere(lock: Lock | RLock) -> bool:
    """Returns True if another thread can acquire the lock. The owner of an RLock could acquire the lock again."""
    acquired: list[bool] = []
    thread = threading.Thread(target=lambda: acquired.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return acquired == [True]


def failed_allocations(kind: Callable[[], Lock | RLock]) -> int:
    """Runs a `with` statement repeatedly. In run n, its allocation number n fails, counted from 0. Returns the number
    of failed runs.

    Ends with the first run in which the statement makes fewer allocations.
    """
    import _testcapi  # type: ignore[import-not-found]

    kept = []
    for nth in range(20):
        lock = kind()
        kept += [tuple([index] * 3) for index in range(FREE_TUPLES)]
        failed = False
        _testcapi.set_nomemory(nth, nth + 1)
        try:
            with lock:
                pass
        except MemoryError:
            failed = True
        finally:
            _testcapi.remove_mem_hooks()
        assert can_be_acquired_elsewhere(lock), f"the lock is locked after allocation {nth} failed"
        if not failed:
            return nth
    raise AssertionError("20 allocations failed; a with statement makes fewer")


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_with_statement_releases_the_lock_if_an_allocation_fails(kind: type[Lock | RLock]) -> None:
    require_failing_allocations()
    assert failed_allocations(kind) > 0


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_an_exception_in_the_block_releases_the_lock_and_is_raised(kind: type[Lock | RLock]) -> None:
    lock = kind()
    with pytest.raises(KeyError, match="key"), lock:
        raise KeyError("key")
    assert lock.acquire(blocking=False)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_a_lock_excludes_other_threads_and_its_own() -> None:
    lock = Lock()
    with lock:
        assert lock.locked()
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.001)
    assert not lock.locked()


def test_the_owner_of_a_reentrant_lock_may_acquire_it_again() -> None:
    lock = RLock()
    assert not lock.is_owned()
    with lock, lock:
        assert lock.is_owned()
        assert lock.acquire(blocking=False)
        lock.release()
    assert not lock.is_owned()
    with pytest.raises(RuntimeError):
        lock.release()


def test_threads_that_wait_get_the_lock_one_at_a_time() -> None:
    lock, inside, most = Lock(), [0], [0]

    def run() -> None:
        for _ in range(500):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == ([0], [1])
