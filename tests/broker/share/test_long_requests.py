"""ShareAcknowledge with many partitions: it runs in slices, with the results of one that runs at once."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from kcore.runtime import Pending, RequestContext
from tests.broker.share.world import World

ACCEPT = 1
PARTITIONS = 450
CONTEXT = RequestContext(6, "test")
FIND_COORDINATOR = FindCoordinatorRequest(key_type=0, coordinator_keys=["other"])
ACKS = {index: [(0, 0, ACCEPT)] for index in range(PARTITIONS)} | {
    PARTITIONS: [(0, 0, ACCEPT)],  # does not exist
    3: [(5, 5, ACCEPT)],  # after the end
}


def acquired_world() -> World:
    """Returns a world in which a member has acquired the record of each partition."""
    world = World(partitions=PARTITIONS)
    for index in range(PARTITIONS):
        world.produce(1, partition=index)
    assert world.acquire("m", 0, range(PARTITIONS), max_records=PARTITIONS) == [(0, 0, 1)] * PARTITIONS
    return world


def errors_of(response: ShareAcknowledgeResponse) -> dict[int, int]:
    return {row.partition_index: row.error_code for row in response.responses[0].partitions}


def test_acknowledgements_of_many_partitions_run_in_slices() -> None:
    world, reference = acquired_world(), acquired_world()
    expected = reference.call(reference.acknowledge_request("m", 1, ACKS), 2)
    world.engine.slices.requests.enabled = True
    pending = world.start(world.acknowledge_request("m", 1, ACKS), 2)
    assert isinstance(pending, Pending)
    assert pending.parked
    slices = 1
    while world.engine.slices:
        world.engine.commit()
        assert not pending.done, "the response comes when all acknowledgements are durable"
        assert world.engine.submit(CONTEXT, FIND_COORDINATOR).coordinators[0].error_code == 0, "others are served"
        world.engine.slices.step()
        slices += 1
    response = world.received(pending, 2)
    assert slices > 2
    assert response == expected
    assert errors_of(response) == dict.fromkeys(range(PARTITIONS), 0) | {3: 42, PARTITIONS: 3}


def test_the_final_epoch_of_a_long_request_ends_the_session_behind_its_acknowledgements() -> None:
    world = acquired_world()
    world.engine.slices.requests.enabled = True
    acks: dict[int, Any] = {index: [(0, 0, ACCEPT)] for index in range(PARTITIONS) if index != 7}
    response = world.call(world.acknowledge_request("m", -1, acks), 2)
    assert set(errors_of(response).values()) == {0}
    assert world.call(world.acknowledge_request("m", 2, acks), 2).error_code == 122
    assert world.acquire("n", 0, range(PARTITIONS)) == [(0, 0, 2)], (
        "the session has released the record of partition 7 only"
    )


@pytest.mark.parametrize("count", [200, 201])
def test_only_long_requests_are_parked(count: int) -> None:
    world = acquired_world()
    world.engine.slices.requests.enabled = True
    response = world.start(world.acknowledge_request("m", 1, {index: [(0, 0, ACCEPT)] for index in range(count)}), 2)
    assert isinstance(response, Pending)
    assert response.parked is (count > 200)
    assert set(errors_of(world.received(response, 2)).values()) == {0}
