"""Share fetches of many partitions that wait for records."""

from __future__ import annotations

import pytest

from kcore.broker.apis import share_fetch
from kcore.broker.data.delayed_fetch import MAX_AT_ONCE
from kcore.broker.share.delayed_share_fetch import DelayedShareFetch
from kcore.runtime import Pending
from tests.broker.share.world import World, acquired


def park_long(world: World, *members: str) -> list[Pending]:
    """Parks one fetch of all partitions for each member. The share partitions are loaded before."""
    parked = []
    for member in members:
        pending = world.start(world.fetch_request(member, 0, range(MAX_AT_ONCE + 1), max_wait_ms=5000), 2)
        world.settle()
        parked.append(pending)
    world.engine.slices.finish()
    world.engine.slices.requests.enabled = True
    return parked


def test_long_fetches_are_tried_in_slices_once_for_all_records() -> None:
    """Without slices, each new record would try all parked fetches at once, which takes 0.4 s for 120 fetches of 5,000
    partitions.
    """
    world = World(partitions=MAX_AT_ONCE + 1)
    parked = park_long(world, "a", "b", "c")
    tries: list[DelayedShareFetch] = []
    try_complete_now = DelayedShareFetch.try_complete_now

    def counted(operation: DelayedShareFetch) -> bool:
        tries.append(operation)
        return try_complete_now(operation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DelayedShareFetch, "try_complete_now", counted)
        for index in (0, 1):
            world.start(world.produce_request(1, partition=index), 9)
            world.engine.commit()
        assert tries == []
        most = 0
        while world.engine.slices:
            before = len(tries)
            world.engine.slices.step()
            most = max(most, len(tries) - before)
    assert (most, len(tries)) == (1, 3)
    world.settle()
    assert [pending.done for pending in parked] == [True, False, False]
    assert len(acquired(parked[0].response)) == 2


def test_a_long_fetch_beyond_the_memory_of_parked_ones_gets_its_response_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_fetch, "MAX_WATCHED", 2 * (MAX_AT_ONCE + 1))
    world = World(partitions=MAX_AT_ONCE + 1)
    (parked,) = park_long(world, "a")
    response = world.call(world.fetch_request("b", 0, range(MAX_AT_ONCE + 1), max_wait_ms=5000), 2)
    assert [partition.error_code for partition in response.responses[0].partitions] == [0] * (MAX_AT_ONCE + 1)
    assert not parked.done
    assert not world.start(world.fetch_request("c", 0, [0], max_wait_ms=5000), 2).done
