"""A failed load of a shard is repeated after pauses that double each time, even if the code that handles the failure
raises an exception.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.log.errors import LogClosedError, LogError
from kcore.runtime import ShardState
from kcore.runtime.load_retry import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, LoadRetry
from kcore.runtime.loader import Replay
from kcore.runtime.shard import Shard
from kcore.runtime.slices import Slices
from tests.runtime.machines import Bench


class Loading:
    """A shard whose log cannot be read, in virtual time.

    Attributes:
        errors: the errors that the next reads raise; the last error of the list is raised first.
        attempts_ms: the times of the reads.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: BaseException) -> None:
        self.bench = Bench()
        self.bench.run("add", "a", 5)
        self.bench.pipeline.commit()
        self.errors = list(errors)
        self.attempts_ms: list[int] = []
        self.now_ms = 0

        def run(replay: Replay, log: Any) -> Iterator[None]:
            self.attempts_ms.append(self.now_ms)
            if self.errors:
                raise self.errors.pop()
            replay.machine.counts["a"] = 5
            yield

        monkeypatch.setattr("kcore.runtime.shard.Replay.run", run)

    def fail(self) -> None:
        """Makes the shard fail, as after a failed commit, so that it loads its log again."""
        self.bench.shard.failed(LogError("a failed commit"))
        self.bench.slices.finish()

    def advance(self, duration_ms: int) -> None:
        """Advances the time in steps of 500 ms. Logs the exceptions of timers, as a driver does."""
        for _ in range(0, duration_ms, 500):
            self.now_ms += 500
            self.bench.clock.advance(500)
            for timer in self.bench.wheel.advance(self.bench.now.update()):
                try:
                    timer.payload()
                except MemoryError:
                    self.attempts_ms.append(-self.now_ms)
            self.bench.slices.finish()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "kcore.runtime.shard")


@pytest.mark.parametrize("error", [LogError("unreadable"), MemoryError("none"), ValueError("a damaged record")])
def test_the_pause_doubles_up_to_half_a_minute(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    world = Loading(monkeypatch, *[error] * 8)
    world.fail()
    world.advance(200_000)
    assert world.attempts_ms == [0, 1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000, 121_000]
    assert world.bench.shard.state is ShardState.ACTIVE
    assert world.bench.wheel.next_deadline_ms() == -1


def test_a_success_resets_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Loading(monkeypatch, *[LogError("unreadable")] * 4)
    world.fail()
    world.advance(20_000)
    assert world.attempts_ms[-1] == 15_000
    world.errors.append(LogError("unreadable"))
    world.fail()
    world.advance(FIRST_PAUSE_MS)
    assert world.attempts_ms[-2:] == [20_000, 20_000 + FIRST_PAUSE_MS]


def test_an_attempt_that_cannot_be_queued_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer adds the next attempt to the queue of slices, and this fails for lack of memory. The timer has armed
    itself again before, so a later attempt loads the shard.
    """
    world = Loading(monkeypatch, LogError("unreadable"))
    world.fail()
    with monkeypatch.context() as patch:
        patch.setattr(Slices, "add", lambda *_: (_ for _ in ()).throw(MemoryError("no entry for the queue")))
        world.advance(FIRST_PAUSE_MS)
    failed = world.bench.shard.state
    world.advance(LONGEST_PAUSE_MS)
    assert (failed, world.bench.shard.state) == (ShardState.FAILED, ShardState.ACTIVE)


def test_a_failure_whose_report_raises_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Loading(monkeypatch, LogError("unreadable"))
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "_report_failed_load", lambda *_: (_ for _ in ()).throw(MemoryError("no line")))
        world.fail()
    world.advance(FIRST_PAUSE_MS)
    assert world.bench.shard.state is ShardState.ACTIVE


def test_a_closed_shard_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Loading(monkeypatch, LogError("unreadable"))
    world.fail()
    world.bench.shard.unload()
    world.advance(LONGEST_PAUSE_MS)
    assert world.attempts_ms == [0]
    assert world.bench.wheel.next_deadline_ms() == -1


@pytest.mark.parametrize("error", [None, LogClosedError()], ids=["the log is read", "the log is closed"])
def test_a_shard_that_is_unloaded_during_a_load_stays_closed(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """A node stops, or releases a partition, while it still loads the partition. The load must not reopen the shard."""
    world = Loading(monkeypatch)

    def run(replay: Replay, log: Any) -> Iterator[None]:
        yield
        if error is not None:
            raise error
        yield

    monkeypatch.setattr("kcore.runtime.shard.Replay.run", run)
    shard, slices = world.bench.shard, world.bench.slices
    shard.failed(LogError("a failed commit"))
    slices.step()
    assert shard.state is ShardState.LOADING
    shard.unload()
    failures: list[BaseException] = []
    monkeypatch.setattr("kcore.runtime.slices.log_failure", lambda log, failure, *_: failures.append(failure))
    slices.finish()
    assert (shard.state, failures) == (ShardState.CLOSED, [])


def test_a_deadline_for_which_there_is_no_memory_is_the_next_round() -> None:
    bench = Bench()
    attempts: list[int] = []

    class NoMemory:
        @property
        def now_ms(self) -> int:
            raise MemoryError

    retry = LoadRetry(bench.wheel, NoMemory(), lambda: attempts.append(1))  # type: ignore[arg-type]
    retry.failed()
    for timer in bench.wheel.advance(bench.now.update()):
        timer.payload()
    assert attempts == [1]
    retry.end()
    assert bench.wheel.next_deadline_ms() == -1
