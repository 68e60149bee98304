"""Transactions over many partitions: their markers are written in slices, each in a round of its own."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode as E
from kcore.runtime import Pending
from kcore.transaction.completion import MARKERS_PER_SLICE
from tests.transaction.world import Identity, World, end_request

PARTITIONS = 2 * MARKERS_PER_SLICE + 300
FIRST, LAST = 0, PARTITIONS - 1


def wide_world() -> tuple[World, Identity]:
    """Makes a node with an open transaction over every partition of a topic. The first and the last partition have
    records.
    """
    world = World(topics={"t": PARTITIONS})
    who = world.begin("a")
    assert set(world.add("a", who, [("t", index) for index in range(PARTITIONS)])) == {E.NONE}
    for index in (FIRST, LAST):
        assert world.produce("a", who, 0, b"x", index=index) == (E.NONE, 0)
    return world, who


def ends(world: World) -> list[int]:
    partitions = [world.engine.partitions.get("t", index) for index in range(PARTITIONS)]
    return [-1 if partition is None else partition.high_watermark for partition in partitions]


def stable(world: World, index: int) -> bool:
    partition: Any = world.engine.partitions.get("t", index)
    return bool(partition.last_stable_offset == partition.high_watermark)


def assert_ended(world: World) -> None:
    """Asserts that the transaction is committed in every partition, before and after a restart."""
    for _ in range(2):
        assert world.state("a") == "CompleteCommit"
        assert all(ends(world)), "a partition has no marker"
        assert stable(world, FIRST)
        assert stable(world, LAST)
        world.restart()


def test_markers_of_a_wide_transaction_are_written_in_slices() -> None:
    """The response needs only the prepared end. Each slice writes a bounded number of markers."""
    world, who = wide_world()
    response = world.start(end_request("a", who, True), 4)
    assert isinstance(response, Pending)
    before = sum(ends(world))
    world.engine.commit()
    assert response.done
    written = [sum(ends(world)) - before]
    while world.engine.slices:
        world.engine.slices.step()
        world.engine.commit()
        written.append(sum(ends(world)) - before - sum(written))
    assert [count for count in written if count] == [MARKERS_PER_SLICE, MARKERS_PER_SLICE, 300]
    assert_ended(world)


@pytest.mark.parametrize("slices", range(5))
def test_a_failed_round_between_slices_loses_no_marker(slices: int) -> None:
    """The shard takes part in every round of the marker phase.

    If one of these rounds fails, the shard is loaded again and restarts the phase.
    """
    world, who = wide_world()
    world.start(end_request("a", who, True), 4)
    world.engine.commit()
    for _ in range(slices):
        world.engine.slices.step()
    world.log.failures_left = 1
    world.settle()
    assert_ended(world)


@pytest.mark.parametrize("slices", range(5))
def test_a_crash_between_slices_loses_no_marker(slices: int) -> None:
    world, who = wide_world()
    world.start(end_request("a", who, True), 4)
    world.engine.commit()
    for _ in range(slices):
        world.engine.slices.step()
        world.engine.commit()
    world.restart()
    assert_ended(world)


@pytest.mark.parametrize(
    ("markers", "error"),
    [
        *((0, MemoryError), (1, RuntimeError), (MARKERS_PER_SLICE - 1, RuntimeError)),
        *((MARKERS_PER_SLICE, MemoryError), (PARTITIONS - 1, RuntimeError)),
    ],
)
def test_an_exception_in_a_slice_restarts_the_marker_phase(
    monkeypatch: pytest.MonkeyPatch, markers: int, error: type[Exception]
) -> None:
    world, who = wide_world()
    partition = type(world.engine.partitions.get("t", 0))
    append, left = partition.append_marker, [markers]

    def failing(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise error
        return append(*arguments)

    monkeypatch.setattr(partition, "append_marker", failing)
    world.start(end_request("a", who, True), 4)
    world.settle()
    assert left[0] < -1
    assert_ended(world)


def test_a_retried_marker_is_written_again_if_its_round_fails() -> None:
    """A retry writes a marker in a round without any other decision of the shard, and this round fails.

    The shard must take part in this round. Otherwise the shard would not notice the failure, and the marker would be
    lost.
    """
    world = World()
    who = world.begin("a")
    assert world.add("a", who, [("t", 0), ("t", 1)]) == [E.NONE, E.NONE]
    assert world.produce("a", who, 0, b"x") == (E.NONE, 0)
    away: Any = [world.engine.partitions.get("t", index) for index in (0, 1)]
    for partition in away:
        partition.recovering = True
    assert world.end("a", who, True)[0] is E.NONE
    assert world.state("a") == "PrepareCommit"
    away[0].recovering = False
    world.log.failures_left = 1
    world.advance(20)
    away[1].recovering = False
    world.advance(5_000)
    assert world.state("a") == "CompleteCommit"
    assert world.end_offsets() == (2, 2)
