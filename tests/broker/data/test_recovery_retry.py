"""Tests that a partition whose recovery failed is recovered again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.data.partition import Partition
from kcore.broker.data.recovery_retry import RecoveryRetry
from kcore.clock import ManualClock, Now
from kcore.log.errors import LogClosedError, LogError, PartitionDroppedError
from kcore.runtime.load_retry import FIRST_PAUSE_MS, LONGEST_PAUSE_MS
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.broker.data.context import DataPlane
from tests.broker.data.test_fetch import plane_with
from tests.broker.data.test_produce import transactional


class Retrying:
    """A partition in recovery, in virtual time. Its log has an open transaction."""

    def __init__(self) -> None:
        self.plane: DataPlane = plane_with(transactional())
        self.plane._open()
        self.partition = self.plane.partition("t")
        self.clock = ManualClock()
        self.now = Now(self.clock)
        self.wheel = TimerWheel(0)
        self.retry = RecoveryRetry(self.wheel, self.plane.slices, self.now)
        self.plane.slices.finish()
        self.partition.recovering = True
        self.partition.begin_recovery()

    def advance(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        for timer in self.wheel.advance(self.now.update()):
            timer.payload()
        self.plane.slices.finish()


def failing(monkeypatch: pytest.MonkeyPatch, partition: Partition, errors: list[BaseException]) -> None:
    """Makes the next reads of the partition's log raise these errors, one error for each read."""
    runs = type(partition.log).runs

    def fails(log: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        if errors:
            raise errors.pop()
        return runs(log, *arguments, **options)

    monkeypatch.setattr(type(partition.log), "runs", fails)


@pytest.mark.parametrize("error", [LogError("input/output error"), MemoryError("once")], ids=["read", "memory"])
def test_a_failed_recovery_is_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    world = Retrying()
    failing(monkeypatch, world.partition, [error])
    with caplog.at_level(logging.CRITICAL, "kcore.broker.data.partition"):
        world.plane.slices.add(world.retry.recover(world.partition))
        world.advance(0)
    assert world.partition.recovering
    world.advance(FIRST_PAUSE_MS - 1)
    assert world.partition.recovering
    world.advance(1)
    assert not world.partition.recovering
    assert list(world.partition.producers.open_transactions.values()) == [0]
    assert world.wheel.next_deadline_ms() == -1


def test_an_interrupted_recovery_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Retrying()
    failing(monkeypatch, world.partition, [KeyboardInterrupt()])
    world.plane.slices.add(world.retry.recover(world.partition))
    with pytest.raises(KeyboardInterrupt):
        world.plane.slices.step()
    world.advance(FIRST_PAUSE_MS)
    assert not world.partition.recovering


def test_the_pause_doubles_while_the_log_is_unreadable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = Retrying()
    errors: list[BaseException] = [LogError("unreadable") for _ in range(8)]
    failing(monkeypatch, world.partition, errors)
    attempts_s = []
    with caplog.at_level(logging.CRITICAL, "kcore.broker.data.partition"):
        world.plane.slices.add(world.retry.recover(world.partition))
        world.advance(0)
        for second in range(1, 400):
            left = len(errors)
            world.advance(1_000)
            if len(errors) < left or (not world.partition.recovering and not left):
                attempts_s.append(second)
            if not world.partition.recovering:
                break
    assert attempts_s == [1, 3, 7, 15, 31, 61, 91, 121]
    assert world.wheel.next_deadline_ms() == -1


def test_a_closed_partition_is_not_recovered_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = Retrying()
    failing(monkeypatch, world.partition, [LogError("unreadable")])
    with caplog.at_level(logging.CRITICAL, "kcore.broker.data.partition"):
        world.plane.slices.add(world.retry.recover(world.partition))
        world.advance(0)
    world.partition.close()
    world.advance(LONGEST_PAUSE_MS)
    assert world.partition.recovering
    assert (len(world.plane.slices), world.wheel.next_deadline_ms()) == (0, -1)


@pytest.mark.parametrize("error", [PartitionDroppedError("t-0"), LogClosedError()], ids=["deleted", "closed"])
def test_a_topic_that_is_deleted_during_the_recovery_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: LogError
) -> None:
    """If the deletion counted as damage, a log line would recommend `kcore log verify`."""
    world = Retrying()
    failing(monkeypatch, world.partition, [error])
    world.plane.slices.add(world.retry.recover(world.partition))
    world.advance(0)
    world.partition.close()
    world.advance(LONGEST_PAUSE_MS)
    assert caplog.messages == []
    assert (len(world.plane.slices), world.wheel.next_deadline_ms()) == (0, -1)
