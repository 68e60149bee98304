"""ShareAcknowledge with many partitions runs in slices, with the same results as in one decision."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.share import endings
from kcore.broker.share.share_partitions import DROP_COST_US
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from kcore.runtime import Pending, RequestContext
from tests.broker.share.world import World

ACCEPT, RELEASE = 1, 2
AVAILABLE = 0
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
        assert world.engine.submit(CONTEXT, FIND_COORDINATOR).coordinators[0].error_code == 0, (
            "other requests are served"
        )
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


def test_a_fetch_with_acknowledgements_of_many_partitions_runs_in_slices() -> None:
    """In one slice, 8,000 partitions would take 0.4 s."""
    world, reference = acquired_world(), acquired_world()
    partitions: dict[int, Any] = {index: [(0, 0, RELEASE)] for index in range(PARTITIONS)}
    # The final request of a session is not served by the fast path.
    expected = reference.fetch("m", -1, partitions)
    world.engine.slices.requests.enabled = True
    pending = world.start(world.fetch_request("m", -1, partitions), 2)
    assert isinstance(pending, Pending)
    steps = 0
    while world.engine.slices:
        world.engine.commit()
        assert not pending.done
        world.engine.slices.step()
        steps += 1
    assert world.received(pending, 2) == expected
    assert steps > 2


def test_the_end_of_a_long_session_releases_its_records_in_slices() -> None:
    """Until the last slice has run, the member cannot open another session, because the slices would also release the
    records that this session acquires.
    """
    world = acquired_world()
    world.engine.slices.requests.enabled = True
    shares = world.engine.share_partitions
    shares.sessions.connection_closed(world.connection_id)
    assert len(shares.sessions) == 0
    released = []
    while world.engine.slices:
        if shares.releasing:
            context = RequestContext(2, "test", connection_id=world.connection_id)
            assert world.engine.submit(context, world.fetch_request("m", 0, [0], max_wait_ms=0)).error_code == 133
        world.engine.slices.step()
        world.engine.commit()
        released.append(sum(one.snapshot()[0][2] == AVAILABLE for one in shares))
    assert released[0] < PARTITIONS
    assert released[-1] == PARTITIONS
    assert len(released) > 2
    assert not shares.releasing
    world.engine.slices.requests.enabled = False
    assert world.acquire("m", 0, range(PARTITIONS), max_records=PARTITIONS) == [(0, 0, 2)] * PARTITIONS


def test_a_group_without_members_gives_up_many_share_partitions_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "SLICE_COST_US", 100 * DROP_COST_US)
    world = acquired_world()
    world.engine.slices.requests.enabled = True
    shares = world.engine.share_partitions
    shares.member_left("g", "n", True)
    world.engine.fire_timers()
    left = [len(shares)]
    while world.engine.slices:
        world.engine.slices.step()
        left.append(len(shares))
    assert left[:3] == [PARTITIONS, PARTITIONS - 100, PARTITIONS - 200]
    assert left[-1] == 0


def test_deleted_topics_give_up_their_share_partitions_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, a topic of 10,000 partitions would be looked up in each of 1,000 groups."""
    monkeypatch.setattr(endings, "SLICE_COST_US", 100 * DROP_COST_US)
    world = acquired_world()
    world.create_topic("other")
    world.engine.slices.requests.enabled = True
    shares, topics = world.engine.share_partitions, world.engine.topics
    other = topics.by_name("other")
    deleted = topics.by_name("t")
    assert other is not None
    assert deleted is not None
    shares.on_topic_deleted(deleted)
    left = []
    while world.engine.slices:
        world.engine.slices.step()
        left.append(len(shares))
        if len(left) == 1:
            shares.on_topic_deleted(other)
    assert left[:2] == [PARTITIONS - 100, PARTITIONS - 200]
    assert left[-1] == 0
    assert not shares._deleted_topics
