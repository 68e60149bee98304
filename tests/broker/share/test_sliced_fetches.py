"""Share fetches of thousands of partitions run in slices, with the same results as in one decision.

In one slice, a fetch of 10,000 partitions would take 45 to 51 ms.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kcore.broker.apis import share_fetch
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Pending
from tests.broker.share.world import World, acquired

PARTITIONS = 300
AVAILABLE, ACQUIRED = 0, 1


@pytest.fixture(autouse=True)
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each partition count as 50, so that each fetch of this test is a long one."""
    monkeypatch.setattr(share_fetch, "FEW_FETCHED", 100)
    monkeypatch.setattr(share_fetch, "LOOK_UP_COST_US", 100)
    monkeypatch.setattr(share_fetch, "ACQUIRE_COST_US", 150)


def loaded_world(records: int = 1) -> World:
    """Returns a world with loaded share partitions, each of which has some records."""
    world = World(partitions=PARTITIONS)
    for index in range(PARTITIONS):
        for _ in range(records):
            world.produce(1, partition=index)
    world.fetch("other", 0, range(PARTITIONS), max_records=0)
    return world


def begin(world: World, member: str = "m", epoch: int = 0, **fields: Any) -> Pending:
    world.engine.slices.requests.enabled = True
    request = world.fetch_request(member, epoch, range(PARTITIONS), **{"max_records": PARTITIONS, **fields})
    pending = world.start(request, 2)
    assert isinstance(pending, Pending)
    assert pending.parked, "further requests of the connection wait"
    return pending


def locked(world: World) -> int:
    """Returns the number of share partitions with acquired records."""
    return sum(any(row[2] == ACQUIRED for row in one.snapshot()) for one in world.engine.share_partitions)


def test_a_fetch_of_many_partitions_runs_in_slices() -> None:
    world, reference = loaded_world(), loaded_world()
    expected = reference.fetch("m", 0, range(PARTITIONS), max_records=PARTITIONS)
    pending = begin(world)
    counts = [locked(world)]
    while world.engine.slices:
        assert not pending.done
        world.engine.slices.step()
        counts.append(locked(world))
    assert world.received(pending, 2) == expected
    assert len(acquired(pending.response)) == PARTITIONS
    assert len([1 for before, after in pairwise(counts) if after > before]) >= 4
    assert max(after - before for before, after in pairwise(counts)) <= 10_000 // 150 + 4


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_session_that_ends_between_two_slices_acquires_no_more(steps: int) -> None:
    world = loaded_world()
    pending = begin(world)
    for _ in range(steps):
        world.engine.slices.step()
    world.engine.share_partitions.sessions.connection_closed(world.connection_id)
    while world.engine.slices:
        world.engine.slices.step()
        world.engine.commit()
    assert pending.response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert locked(world) == 0


@pytest.mark.parametrize("steps", [1, 5, 7])
def test_a_fetch_whose_connection_closes_acquires_no_more(steps: int) -> None:
    world = loaded_world()
    pending = begin(world)
    for _ in range(steps):
        world.engine.slices.step()
    before = locked(world)
    pending.abandon()
    while world.engine.slices:
        world.engine.slices.step()
    assert not pending.done
    assert locked(world) == before < PARTITIONS


def test_a_long_fetch_that_waited_acquires_its_records_in_slices() -> None:
    world = loaded_world(records=0)
    pending = begin(world, max_wait_ms=5_000)
    while world.engine.slices:
        world.engine.slices.step()
    assert not pending.done
    for index in range(PARTITIONS):
        world.start(world.produce_request(1, partition=index), 9)
    world.engine.commit()
    counts = [locked(world)]
    while world.engine.slices:
        world.engine.slices.step()
        counts.append(locked(world))
    assert len(acquired(world.received(pending, 2))) == PARTITIONS
    assert max(after - before for before, after in pairwise(counts)) <= 10_000 // 150 + 4


def test_an_error_in_a_slice_is_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    world = loaded_world()
    pending = begin(world)
    monkeypatch.setattr(share_fetch, "AcquireParams", None)
    while world.engine.slices:
        world.engine.slices.step()
    assert pending.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
