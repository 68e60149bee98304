"""Consumer groups in an embedded engine: heartbeats and assignments, and watchers that receive events of the group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import kcore
from kcore.group.consumer.events import GroupChanged
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.kit import make_topic

SETTINGS = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "2"}


def joining(member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def count(response: ConsumerGroupHeartbeatResponse) -> int:
    assert response.assignment is not None
    return sum(len(topic.partitions) for topic in response.assignment.topic_partitions)


def test_a_heartbeat_returns_an_assignment_and_watchers_get_events(tmp_path: Path) -> None:
    """A heartbeat's response has the assignment. A watcher gets an event for each change of the group, before and after
    a restart on the same folder.
    """
    events: list[GroupChanged] = []
    with kcore.open(tmp_path, config=SETTINGS) as engine:
        make_topic(engine, "t", 4)
        stop = engine.watch_group("g", events.append)
        assert count(engine.send(joining("m1"))) == 4
        assert [(event.state, event.group_epoch) for event in events] == [("Stable", 2)]
        assert events[0].members["m1"].assigned == {"t": (0, 1, 2, 3)}
        stop()
    with kcore.open(tmp_path, config=SETTINGS) as engine:
        engine.watch_group("g", events.append)
        assert count(engine.send(joining("m2"))) == 0
        assert [(event.state, event.group_epoch) for event in events] == [("Stable", 2), ("Reconciling", 3)]


async def test_a_large_group_s_target_is_computed_on_a_thread() -> None:
    """On an event loop, a second member joins a group that counts as large. The join gets its response before the
    target is computed. The engine then computes and writes the target without another heartbeat.
    """
    async with kcore.open_async(config=SETTINGS) as engine:
        engine.engine.consumer_groups.inline_members = 0
        await engine.send(joining("m0"))
        changed = asyncio.Event()

        def watch(event: GroupChanged) -> None:
            if event.assignment_epoch == event.group_epoch:
                changed.set()

        engine.watch_group("g", watch)
        response = await engine.send(joining("m1"))
        assert response.member_epoch < engine.engine.groups.of("g").machine.groups["g"].group_epoch  # type: ignore[attr-defined]
        await asyncio.wait_for(changed.wait(), 20)
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m1", member_epoch=response.member_epoch, topic_partitions=list[TopicPartitions]()
        )
        response = await engine.send(beat)
        assert response.member_epoch == engine.engine.groups.of("g").machine.groups["g"].group_epoch  # type: ignore[attr-defined]
