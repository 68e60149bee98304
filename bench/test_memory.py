"""The total memory for each member of a consumer group. Each group has 10 members, which share a topic with 20
partitions, as in the Java benchmark of Kafka's classes.

`bytes_a_member` is the node's memory: members, assignments, targets, timers, ids, groups and their dictionaries, with
the members' last responses. It excludes the log. Classic members and offsets are in bench/test_groups.py and
bench/test_offsets.py.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc

from pytest_benchmark.fixture import BenchmarkFixture

from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kcore.runtime import Pending, RequestContext
from tests.group.context import GroupContext
from tests.kit import serve

GROUPS, MEMBERS, PARTITIONS = 500, 10, 20
CONTEXT = RequestContext(1, "consumer-1", "/10.0.0.1")
MAX_TURNS = 30
KAFKA_BYTES_A_MEMBER = 2227  # Kafka 4.3.1's own classes: the row "memory" in bench/peers/README.md


def settle(context: GroupContext, api: ConsumerGroupHeartbeatApi, group_id: str) -> None:
    """Makes members join a new group and send heartbeats until each member has acknowledged its partitions."""
    ids = [f"{group_id}-{index:016x}-member-000000000" for index in range(MEMBERS)]
    beats = [
        ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=["topic-0"],
            topic_partitions=[],
        )
        for member_id in ids
    ]
    for _ in range(MAX_TURNS):
        responses = [serve(api, CONTEXT, beat) for beat in beats]
        context.pipeline.commit()
        beats = []
        for member_id, result in zip(ids, responses, strict=True):
            response = result.response if isinstance(result, Pending) else result
            assert not response.error_code, response
            assignment = response.assignment
            owned = assignment and [
                TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in assignment.topic_partitions
            ]
            beats.append(
                ConsumerGroupHeartbeatRequest(
                    group_id=group_id, member_id=member_id, member_epoch=response.member_epoch, topic_partitions=owned
                )
            )
        if all(beat.topic_partitions is None for beat in beats):
            group = context.machine.groups[group_id]
            assert group.state_name() == "Stable"
            if all(member.settled_epoch == group.assignment_epoch for member in group.members.values()):
                return
    raise AssertionError(f"{group_id} did not come to rest")


def test_bytes_a_consumer_member(benchmark: BenchmarkFixture) -> None:
    def weigh() -> float:
        context = GroupContext({"group.consumer.assignment.interval.ms": 0}, {"topic-0": PARTITIONS})
        context.auto_commit = False
        api = ConsumerGroupHeartbeatApi(context.shards, context.consumer)
        settle(context, api, "first")  # creates the objects that all groups share
        first_offset = context.log().end_offset
        gc.collect()
        tracemalloc.start()
        for number in range(GROUPS):
            settle(context, api, f"group-{number}")
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        batches = [batch for offset, batch in context.log().batches() if offset >= first_offset]
        return (taken - sum(map(sys.getsizeof, batches))) / (GROUPS * MEMBERS)

    weight = benchmark.pedantic(weigh, rounds=1)
    benchmark.extra_info["bytes_a_member"] = round(weight)
    assert weight < KAFKA_BYTES_A_MEMBER
