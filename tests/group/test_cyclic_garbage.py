"""Deleted state is freed by reference counts alone.

With many objects, `kcore serve` runs no full garbage collections, because they would take too long. Therefore a deleted
group must not be part of a reference cycle, which would keep it in memory.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.join_group import JoinGroupRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kcore.runtime import Pending, RequestContext, ShardTimer
from tests.kit import COMMIT_VERSION, QUICK, batch, commit, create, fetch, join, leave, produce, stable_alone

MEMBER = "m" * 22
UNITS = 20


class Node:
    """An engine whose `send` waits for the response of each request."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(MemoryLogEngine(), Config.of(QUICK), self.clock, partial(random.Random(1).randbytes, 16))

    def send(self, request: Any, version: int | None = None) -> Any:
        served = self.engine.newest_version(request) if version is None else version
        response = self.engine.submit(RequestContext(served, "c"), request)
        for _ in range(20):
            self.advance(0)
            if not isinstance(response, Pending):
                return response
            if response.done:
                return response.response
            self.advance(100)
        return response

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(3):
            self.engine.turn()
            self.engine.commit()
        self.engine.slices.finish()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    node.send(create("base", partitions=4))
    yield node
    node.engine.close()


def delete(node: Node, group: str) -> None:
    response = node.send(DeleteGroupsRequest(groups_names=[group]))
    assert [result.error_code for result in response.results] == [0]


def topics(node: Node, unit: int) -> None:
    node.send(create(f"t{unit}", partitions=10))
    node.send(produce(f"t{unit}", batch([b"x"])), 9)
    node.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{unit}")], timeout_ms=1_000))


def classic_groups(node: Node, unit: int) -> None:
    group = f"classic-{unit}"
    member, _ = stable_alone(node, group)
    node.send(leave(group, member))
    delete(node, group)


def expired_classic_groups(node: Node, unit: int) -> None:
    """Creates groups in which a member and an unused member id time out."""
    group = f"expired-{unit}"
    stable_alone(node, group)
    request: JoinGroupRequest = join(group, "")
    node.send(request, 9)
    node.advance(700_000)


def consumer_heartbeat(node: Node, group: str, epoch: int, member: str = MEMBER) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["base"],
        topic_partitions=[],
    )
    response = node.send(request)
    assert response.error_code == 0, response
    return response


def consumer_groups(node: Node, unit: int) -> None:
    """Creates groups that a second member joins, so that the first one must release partitions."""
    group = f"consumer-{unit}"
    consumer_heartbeat(node, group, 0)
    node.advance(2_000)
    consumer_heartbeat(node, group, 0, "n" * 22)
    node.advance(2_000)
    consumer_heartbeat(node, group, -1)
    consumer_heartbeat(node, group, -1, "n" * 22)
    delete(node, group)


def expired_consumer_groups(node: Node, unit: int) -> None:
    group = f"late-{unit}"
    consumer_heartbeat(node, group, 0)
    node.advance(700_000)


def share_groups(node: Node, unit: int) -> None:
    group = f"share-{unit}"
    for epoch in (0, -1):
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=["base"]
        )
        assert node.send(request).error_code == 0
    delete(node, group)


def streams_groups(node: Node, unit: int) -> None:
    group = f"streams-{unit}"
    topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=["base"])])
    for epoch in (0, -1):
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=MEMBER,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=1_000,
            topology=None if epoch else topology,
            active_tasks=None if epoch else [],
            standby_tasks=None if epoch else [],
            warmup_tasks=None if epoch else [],
            process_id=None if epoch else "p",
            client_tags=None if epoch else [],
        )
        response = node.send(request)
        assert response.error_code == 0, response
        node.advance(5_000)
    delete(node, group)


def producers(node: Node, unit: int) -> None:
    node.send(InitProducerIdRequest(transactional_id=f"x{unit}", transaction_timeout_ms=1_000), 4)
    node.send(produce("base", batch([b"x"]), unit % 4), 9)
    node.send(fetch("base", 0, unit % 4), 12)


def offsets(node: Node, unit: int) -> None:
    group = f"offsets-{unit}"
    node.send(commit(group, {("base", partition): unit for partition in range(4)}), COMMIT_VERSION)
    delete(node, group)


@pytest.mark.parametrize(
    "work",
    [
        topics,
        classic_groups,
        expired_classic_groups,
        consumer_groups,
        expired_consumer_groups,
        share_groups,
        streams_groups,
        producers,
        offsets,
    ],
)
def test_deleted_state_leaves_no_cycles(node: Node, work: Callable[[Node, int], None]) -> None:
    work(node, 0)  # imports and caches
    gc.collect()
    gc.disable()
    try:
        for unit in range(1, UNITS + 1):
            work(node, unit)
        node.advance(700_000)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(thing).__name__ for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert {name: count for name, count in left.items() if count >= UNITS} == {}


def subclasses(cls: type) -> list[type]:
    return [found for direct in cls.__subclasses__() for found in (direct, *subclasses(direct))]


def test_shard_timers_keep_the_timer_of_the_wheel_in_the_slot_that_disarm_clears() -> None:
    found = subclasses(ShardTimer)
    assert {"Member", "PendingMember", "ConsumerMember", "ShareMember", "StreamsMember"} <= {c.__name__ for c in found}
    assert [c.__name__ for c in found if {"timer", "_timer"} & set(c.__dict__.get("__slots__", ()))] == []
