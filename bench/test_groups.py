"""Classic groups inside the engine, without a socket: heartbeats, join storms, and the memory of a member.

Requests are made beforehand, as a server has them after decoding. The time is virtual and the log is in memory, so a
row is the cost of the coordinator itself. The baseline of the heartbeat is the minimum in Python: two dictionary
look-ups and one store.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.protocol.consumer_protocol import Assignment, Subscription, TopicPartition
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kcore.runtime import Pending, RequestContext
from tests.group.context import GroupContext

GROUP = "orders-consumers"
DELAY_MS = 3000
CONTEXT = RequestContext(9, "consumer-orders-consumers-1", "/10.0.0.1")


class Storm:
    """An empty group, and the members that join it with JoinGroup v9: they request an id, join, and sync."""

    def __init__(self, size: int) -> None:
        self.context = GroupContext({"group.initial.rebalance.delay.ms": DELAY_MS})
        self.context.auto_commit = False
        shards = self.context.shards
        self.join, self.sync = JoinGroupApi(shards, self.context.config), SyncGroupApi(shards)
        self.heartbeat = HeartbeatApi(shards)
        self.size = size

    def _request(self, member_id: str = "") -> JoinGroupRequest:
        # Each request has its own bytes, like decoded ones.
        subscription = Subscription(topics=["orders", "payments"], user_data=b"").encode_versioned(3)
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )

    def prepare(self) -> None:
        """Sends the clients' first requests, which are not part of the measurement."""
        self.first = [self._request() for _ in range(self.size)]
        self.second = [self._request() for _ in range(self.size)]

    def run(self) -> list[Any]:
        """Runs the whole join: two JoinGroups and a SyncGroup of each member. Returns the responses to the
        SyncGroups.
        """
        context, join, sync = self.context, self.join, self.sync
        for asking, joining in zip(self.first, self.second, strict=True):
            result = join.handle(CONTEXT, asking)
            if isinstance(result, Pending):  # the first one waits for the group's creation
                context.commit()
                result = result.response
            joining.member_id = result.member_id
        joins = [join.handle(CONTEXT, request) for request in self.second]
        context.advance(2 * DELAY_MS)
        responses = [result.response for result in joins]
        leader = next(response for response in responses if response.members)
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=Assignment(
                    assigned_partitions=[TopicPartition(topic="orders", partitions=[index])]
                ).encode_versioned(3),
            )
            for index, member in enumerate(leader.members)
        ]
        syncs = []
        for response in reversed(responses):  # the leader came first and syncs last: all other members are parked
            request = SyncGroupRequest(
                group_id=GROUP,
                generation_id=response.generation_id,
                member_id=response.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments if response is leader else (),
            )
            syncs.append(sync.handle(CONTEXT, request))
        context.commit()
        return [result.response for result in syncs]

    @property
    def group(self) -> ClassicGroup:
        group = self.context.machine.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group


@pytest.mark.parametrize("members", [100, 1000])
def test_cold_join(benchmark: BenchmarkFixture, members: int) -> None:
    """Measures the formation of a group in an empty shard, from requests for member ids until the group is Stable."""
    storms: list[Storm] = []

    def setup() -> tuple[tuple[Storm], dict[str, Any]]:
        storm = Storm(members)
        storm.prepare()
        storms.append(storm)
        gc.collect()
        return (storm,), {}

    responses = benchmark.pedantic(Storm.run, setup=setup, rounds=5)
    assert len({response.assignment for response in responses}) == members
    assert len(storms[-1].group.members) == members
    benchmark.extra_info["us_a_member"] = benchmark.stats.stats.min / members * 1e6


@pytest.mark.parametrize("which", ["baseline", "fast path", "generic path"])
def test_heartbeat(benchmark: BenchmarkFixture, which: str) -> None:
    """Measures 1,000 valid heartbeats, each from a different member."""
    storm = Storm(1000)
    storm.prepare()
    storm.run()
    generation = storm.group.generation_id
    requests = [
        HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=name) for name in storm.group.members
    ]
    api = storm.heartbeat
    serve = api.handle if which == "generic path" else api.fast
    assert serve is not None
    served = api.fast_path.served
    context = RequestContext(4, "consumer-orders-consumers-1", "/10.0.0.1")

    def heartbeats() -> Any:
        for request in requests:
            response = serve(context, request)
        return response

    def baseline() -> Any:
        groups, deadlines = {GROUP: storm.group.members}, dict.fromkeys(storm.group.members, 0)
        for request in requests:
            member = groups[request.group_id][request.member_id]
            deadlines[member.member_id] = 45_000
        return storm.group.heartbeat_reply

    response = benchmark(baseline if which == "baseline" else heartbeats)
    assert response.error_code == 0
    assert (api.fast_path.served > served) is (which == "fast path")
    benchmark.extra_info["operations"] = len(requests)


def test_bytes_a_member(benchmark: BenchmarkFixture) -> None:
    """Measures the memory of a Stable group of 4,000 members.

    It includes members, timers, dictionaries, ids, metadata and assignments.
    """
    size = 4000  # about the maximum that fits in one record of a megabyte

    def weigh() -> float:
        storm = Storm(size)
        gc.collect()
        tracemalloc.start()
        storm.prepare()
        storm.run()
        del storm.first, storm.second
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        log_bytes = storm.context.log().size_bytes()  # the log in memory holds the group's record too
        # Timers of the wheel are ordinary Python objects, so tracemalloc counts them.
        return (taken - log_bytes) / size

    weight = benchmark.pedantic(weigh, rounds=1)
    benchmark.extra_info["bytes_a_member"] = round(weight)
    assert weight < 987
