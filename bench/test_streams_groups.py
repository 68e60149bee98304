"""Streams groups (KIP-1071): a heartbeat in a stable group, and a group of 100 processes from the first join until it
is stable.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.streams_group_heartbeat import StreamsGroupHeartbeatApi
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kcore.runtime import RequestContext
from tests.group.streams.members import GROUP, Member, World, subtopology, topology

DELAY_MS = 3_000
SUBTOPOLOGIES = 10
APPLICATION = topology(*(subtopology(str(number), ["in"]) for number in range(SUBTOPOLOGIES)))


def formed(processes: int, partitions: int) -> tuple[World, list[Member]]:
    """Returns a stable group, whose members join within the initial rebalance delay."""
    world = World({"in": partitions}, group_streams_initial_rebalance_delay_ms=DELAY_MS)
    world.api = StreamsGroupHeartbeatApi(world.shards, world.streams)
    members = [Member(world, f"m{number}") for number in range(processes)]
    for member in members:
        member.join(APPLICATION)
    world.advance(DELAY_MS)
    world.settle(*members)
    return world, members


@pytest.mark.parametrize("processes", [10, 1_000])
def test_a_heartbeat_at_rest(benchmark: Any, processes: int) -> None:
    """Measures a decoded heartbeat of a stable group on the fast path, which returns a cached response object."""
    world, members = formed(processes, 10)
    api, context = world.heartbeats, RequestContext(0, "client")
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=members[1].epoch)
    members[1].beat()
    fast = api.fast
    assert fast is not None
    first = fast(context, request)
    assert first is not None
    assert benchmark(fast, context, request) is first


@pytest.mark.parametrize("tasks", [1_000])
def test_100_processes_come_to_rest(benchmark: Any, tasks: int) -> None:
    """Measures a group from the first join to the last acknowledged task, including the codec of the test clients."""
    benchmark.pedantic(lambda: formed(100, tasks // SUBTOPOLOGIES), rounds=5)
