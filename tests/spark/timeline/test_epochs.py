"""The timeline of consumer groups, from logs that the engine writes in virtual time: every epoch with its cause,
duration and moved partitions.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from kcore.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kcore.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kcore.protocol.records.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from kcore.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.streams_group_member_metadata import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from kcore.protocol.records.streams_group_metadata import (
    LastAssignmentConfig,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from kcore.protocol.records.streams_group_target_assignment_member import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    TaskIds,
)
from kcore.protocol.records.streams_group_target_assignment_metadata import (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)
from kcore.spark.events.batches import rows_of
from kcore.spark.timeline import causes
from kcore.spark.timeline.history import HistoryOptions
from tests.group.consumer.members import Member, World
from tests.spark.timeline.logs import Log, brief, history, history_of

STEP_MS = 100
SESSION_MS = 45_000
COLUMNS = ("epoch", "cause", "outcome", "duration_ms", "joined", "left", "moved", "gained", "lost")


def events(world: World, wanted: HistoryOptions | None = None) -> dict[str, list[dict[str, Any]]]:
    """Returns the events of the log of a world."""
    found = [row for _, batch in world.log(0).batches(start=0) for row in rows_of(CONSUMER_OFFSETS, 0, batch)]
    return history_of(CONSUMER_OFFSETS, found, wanted)


@pytest.fixture
def world() -> World:
    return World({"t": 4})


def settled(world: World, *members: Member) -> None:
    """Sends heartbeats, and advances the time before each round, until all members are stable."""
    while world.group.state_name() != "Stable" or any(m.epoch != world.group.group_epoch for m in members):
        world.advance(STEP_MS)
        for member in members:
            member.ack()


def test_a_rebalance_lasts_until_every_member_has_its_target(world: World) -> None:
    """The second member waits for partitions of the first member, and gets them with its own next heartbeat."""
    a, b = Member(world, "a"), Member(world, "b")
    a.join(["t"])
    world.advance(1_000)
    b.join(["t"])
    settled(world, a, b)
    facts = events(world)
    first, second = brief(facts, *COLUMNS)
    assert first == (2, causes.JOINED, "completed", 0, ["a"], [], 0, 4, 0)
    assert second == (3, causes.JOINED, "completed", second[3], ["b"], [], 2, 2, 2)
    assert second[3] % STEP_MS == 0
    assert second[3] > 0
    assert [(row["epoch"], row["member_id"], len(row["gained"]), len(row["lost"])) for row in facts["moves"]] == [
        (2, "a", 4, 0),
        (3, "a", 0, 2),
        (3, "b", 2, 0),
    ]
    assert {row["covers"] for row in facts["rebalances"]} == {"whole"}


def test_a_change_supersedes_an_incomplete_rebalance(world: World) -> None:
    a, b, c = Member(world, "a"), Member(world, "b"), Member(world, "c")
    a.join(["t"])
    world.advance(1_000)
    b.join(["t"])
    world.advance(300)
    c.join(["t"])
    found = brief(events(world), "epoch", "outcome", "duration_ms", "covers", "joined")
    assert found == [
        (2, "completed", 0, "whole", ["a"]),
        (3, "superseded", 300, "whole", ["b"]),
        (4, "open", None, "none", ["c"]),
    ]


def test_a_leave_differs_from_a_timeout_only_if_the_session_timeout_is_known(world: World) -> None:
    """With the session timeout, the job can distinguish a leave soon after a commit or heartbeat from an expiry.
    Otherwise the departure is ambiguous.
    """
    a, b, c = Member(world, "a"), Member(world, "b"), Member(world, "c")
    for member in (a, b, c):
        member.join(["t"])
    settled(world, a, b, c)
    world.advance(2_000)
    b.leave()
    settled(world, a, c)
    for _ in range(60):  # a stays, c is silent until its session ends
        world.advance(1_000)
        a.ack()
    settled(world, a)
    gone = [row for row in events(world)["rebalances"] if row["left"]]
    assert [(row["left"], row["causes"]) for row in gone] == [(["b"], [causes.GONE]), (["c"], [causes.GONE])]
    gone = [row for row in events(world, HistoryOptions(session_timeout_ms=SESSION_MS))["rebalances"] if row["left"]]
    assert [(row["left"], row["causes"]) for row in gone] == [(["b"], [causes.LEFT]), (["c"], [causes.GONE])]


TOPIC_ID = bytes(15) + b"t"


def one_member() -> Log:
    """Returns a consumer group with the stable member `m`, which owns partition 0."""
    key = {"group_id": "g", "member_id": "m"}
    parts = [TopicPartition(topic_id=TOPIC_ID, partitions=[0])]
    log = Log().put(ConsumerGroupMemberMetadataKey(**key), ConsumerGroupMemberMetadataValue())
    log.put(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=1))
    target = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=parts)
    log.put(ConsumerGroupTargetAssignmentMemberKey(**key), target)
    epoch = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1)
    log.put(ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), epoch)
    current = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, previous_member_epoch=0, state=0)
    return log.put(ConsumerGroupCurrentMemberAssignmentKey(**key), current)


def member_goes(log: Log) -> Log:
    """Removes the member, with the same records for a leave and for an expired session."""
    key = {"group_id": "g", "member_id": "m"}
    for cls in (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
    ):
        log.put(cls(**key), None)
    return log.put(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=2))


@pytest.mark.parametrize(
    ("commit_after_ms", "gone_after_ms", "cause"),
    [
        (None, SESSION_MS - 1, causes.LEFT),
        (None, SESSION_MS, causes.GONE),
        (SESSION_MS, SESSION_MS // 2 - 1, causes.LEFT),
        (SESSION_MS, SESSION_MS // 2, causes.GONE),  # a commit renews no session: its last heartbeat may be older
    ],
)
def test_a_member_counts_as_alive_for_a_session_after_its_last_record(
    commit_after_ms: int | None, gone_after_ms: int, cause: str
) -> None:
    log = one_member()
    if commit_after_ms is not None:
        log.passes(commit_after_ms).commits("g", 0, 7, topic_id=TOPIC_ID)
    facts = history(member_goes(log.passes(gone_after_ms)), HistoryOptions(session_timeout_ms=SESSION_MS))
    assert brief(facts, "epoch", "cause", "outcome", "left", "lost") == [
        (1, causes.JOINED, "completed", [], 0),
        (2, cause, "emptied", ["m"], 1),
    ]


def test_a_member_that_does_not_revoke_times_out(world: World) -> None:
    """The member ignores the revocation and is removed after its rebalance timeout. The log shows this cause."""
    a, b = Member(world, "a"), Member(world, "b")
    a.join(["t"])
    b.join(["t"])
    for _ in range(12):
        world.advance(1_000)
        b.ack()
        if "a" in world.group.members:
            a.send(topic_partitions=None)
    (row,) = [row for row in events(world)["rebalances"] if row["left"]]
    assert (row["left"], row["causes"]) == (["a"], [causes.TIMED_OUT])
    assert row["detail"] == "a did not revoke partitions within 10000 ms"


def test_a_static_member_is_replaced_or_times_out(world: World) -> None:
    """Replacing a static member starts no new epoch. Without a replacement, the log shows a session timeout."""
    a, old, new = Member(world, "a"), Member(world, "old", "i"), Member(world, "new", "i")
    a.join(["t"])
    old.join(["t"])
    settled(world, a, old)
    old.leave(-2)
    world.advance(1_000)
    new.join(["t"])
    settled(world, a, new)
    new.leave(-2)
    for _ in range(50):
        world.advance(1_000)
        a.ack()
    settled(world, a)
    found = brief(events(world), "epoch", "cause", "outcome", "joined", "left", "moved")
    assert found[-2:] == [
        (3, causes.REPLACED, "replaced", [], [], 0),
        (4, causes.TIMED_OUT, "completed", [], ["i"], 2),
    ]


def test_changes_of_subscriptions_and_topics_are_causes(world: World) -> None:
    """The timeline names the causes of four rebalances: a join, another subscription, a topic that grew, and the
    departure of the only member.
    """
    a = Member(world, "a")
    a.join(["t"])
    settled(world, a)
    world.make_topic("u", 2)
    a.send(subscribed_topic_names=["t", "u"])
    settled(world, a)
    world.make_topic("t", 6)
    a.ack()  # the next heartbeat looks
    settled(world, a)
    a.leave()
    found = brief(events(world), *COLUMNS)
    assert [row[1:3] for row in found] == [
        (causes.JOINED, "completed"),
        (causes.SUBSCRIPTION, "completed"),
        (causes.TOPICS, "completed"),
        (causes.GONE, "emptied"),
    ]
    assert [row[7:] for row in found] == [(4, 0), (2, 0), (2, 0), (0, 8)]


def test_initialized_share_partitions_are_a_cause() -> None:
    key = ShareGroupMetadataKey(group_id="s")
    log = Log().put(key, ShareGroupMetadataValue(epoch=1, metadata_hash=5)).passes(10)
    log.put(ShareGroupStatePartitionMetadataKey(group_id="s"), ShareGroupStatePartitionMetadataValue()).passes(10)
    log.put(key, ShareGroupMetadataValue(epoch=2, metadata_hash=5)).passes(10)
    log.put(key, ShareGroupMetadataValue(epoch=3, metadata_hash=6)).passes(10)
    log.put(key, ShareGroupMetadataValue(epoch=6, metadata_hash=6))
    assert brief(history(log), "group_type", "epoch", "skipped", "cause") == [
        ("share", 1, 0, causes.UNKNOWN),
        ("share", 2, 0, causes.SHARE_READY),
        ("share", 3, 0, causes.TOPICS),
        ("share", 6, 2, causes.UNKNOWN),
    ]


def test_streams_groups_move_tasks() -> None:
    """The timeline of a streams group contains moved tasks, and distinguishes active and standby tasks.

    In records of streams groups, the state STABLE has another number than in those of consumer groups.
    """
    member, group = {"group_id": "s", "member_id": "m"}, {"group_id": "s"}
    described = StreamsGroupMemberMetadataValue(client_id="c", client_host="/h")
    log = Log().put(StreamsGroupMemberMetadataKey(**member), described)
    log.put(StreamsGroupMetadataKey(**group), StreamsGroupMetadataValue(epoch=1, metadata_hash=1))
    target = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=[TaskIds(subtopology_id="0", partitions=[0, 1])],
        standby_tasks=[TaskIds(subtopology_id="0", partitions=[2])],
    )
    log.put(StreamsGroupTargetAssignmentMemberKey(**member), target)
    epoch = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=1)
    log.put(StreamsGroupTargetAssignmentMetadataKey(**group), epoch)
    for state, wait_ms in ((0, 30), (1, 40)):
        current = StreamsGroupCurrentMemberAssignmentValue(member_epoch=1, previous_member_epoch=0, state=state)
        log.passes(wait_ms).put(StreamsGroupCurrentMemberAssignmentKey(**member), current)
    facts = history(log)
    assert brief(facts, *COLUMNS) == [(1, causes.JOINED, "completed", 70, ["m"], [], 0, 3, 0)]
    (move,) = facts["moves"]
    assert move["gained"] == [
        {"topic": "active:0", "partition": 0},
        {"topic": "active:0", "partition": 1},
        {"topic": "standby:0", "partition": 2},
    ]


def test_a_changed_number_of_standby_tasks_is_a_cause() -> None:
    key = StreamsGroupMetadataKey(group_id="s")
    log = Log()
    for epoch, replicas in ((1, None), (2, "1"), (3, "1"), (4, "2")):
        configs = [] if replicas is None else [LastAssignmentConfig(key="num.standby.replicas", value=replicas)]
        log.put(key, StreamsGroupMetadataValue(epoch=epoch, last_assignment_configs=configs)).passes(10)
    assert brief(history(log), "epoch", "cause", "detail") == [
        (1, causes.UNKNOWN, ""),
        (2, causes.ASSIGNMENT_SETTINGS, "num.standby.replicas: None -> 1"),
        (3, causes.UNKNOWN, ""),
        (4, causes.ASSIGNMENT_SETTINGS, "num.standby.replicas: 1 -> 2"),
    ]


@pytest.mark.parametrize(("state", "cause"), [(1, causes.GONE), (2, causes.TIMED_OUT), (3, causes.GONE)])
def test_a_streams_member_that_does_not_revoke_tasks_times_out(state: int, cause: str) -> None:
    """Only a member that must revoke tasks (state 2) is removed after its rebalance timeout."""
    member, group = {"group_id": "s", "member_id": "m"}, {"group_id": "s"}
    described = StreamsGroupMemberMetadataValue(client_id="c", client_host="/h", rebalance_timeout_ms=500)
    log = Log().put(StreamsGroupMemberMetadataKey(**member), described)
    log.put(StreamsGroupMetadataKey(**group), StreamsGroupMetadataValue(epoch=1))
    current = StreamsGroupCurrentMemberAssignmentValue(member_epoch=1, previous_member_epoch=0, state=state)
    log.put(StreamsGroupCurrentMemberAssignmentKey(**member), current).passes(500)
    log.put(StreamsGroupCurrentMemberAssignmentKey(**member), None)
    log.put(StreamsGroupMemberMetadataKey(**member), None)
    log.put(StreamsGroupMetadataKey(**group), StreamsGroupMetadataValue(epoch=2))
    found = [row for row in brief(history(log), "epoch", "cause", "left") if row[0] == 2]
    assert found == [(2, cause, ["m"])]
