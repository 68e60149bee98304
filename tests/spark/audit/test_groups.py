"""Planted faults in the records of groups: the audit finds each fault once, with its evidence, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kcore.protocol.consumer_protocol import Assignment
from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.protocol.records.consumer_group_current_member_assignment import ConsumerGroupCurrentMemberAssignmentKey
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey
from kcore.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kcore.protocol.records.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue, StateBatch
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue
from kcore.protocol.records.share_update import StateBatch as UpdateBatch
from kcore.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIds,
)
from kcore.protocol.records.streams_group_member_metadata import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from kcore.protocol.records.streams_group_metadata import StreamsGroupMetadataKey, StreamsGroupMetadataValue
from kcore.protocol.records.streams_group_target_assignment_metadata import StreamsGroupTargetAssignmentMetadataKey
from kcore.protocol.records.streams_group_topology import StreamsGroupTopologyKey, StreamsGroupTopologyValue
from kcore.spark.audit.finding import finding
from kcore.spark.audit.logs import GRACE_MS
from tests.spark.audit.written import TOPIC_ID, Written, found, share_log

TOPIC = TOPIC_ID.hex()


@pytest.fixture
def log() -> Written:
    return Written()


# ---- classic groups


def test_a_decreasing_generation_is_found(log: Written) -> None:
    log.generation("g", 6, a=[0])
    before = log.generation("g", 7, a=[0])
    here = log.generation("g", 5, a=[0])
    log.generation("g", 6, a=[0])
    assert found(log) == [
        finding(
            "generation-decreased",
            [before, here],
            "The generation of group g fell from 7 to 5.",
            group_id="g",
        )
    ]


def test_generations_may_stay_jump_or_restart_after_the_removal_of_the_group(log: Written) -> None:
    log.generation("g", 7, a=[0])
    log.generation("g", 7, b=[0])  # a static member came back under another id
    log.generation("g", 12)
    log.put(GroupMetadataKey(group="g"))
    log.generation("g", 1, a=[0])
    assert found(log) == []


def test_a_partition_with_two_owners_in_a_generation_is_found(log: Written) -> None:
    here = log.generation("g", 1, a=[0, 1, 2], b=[1, 2, 3])
    assert found(log) == [
        finding(
            "two-owners",
            [here],
            "In generation 1 of group g a and b both own t-1 and 1 more.",
            group_id="g",
            member_id="b",
            about=("t", 1),
        )
    ]


def test_assignments_of_other_protocols_are_ignored(log: Written) -> None:
    """Bytes of an unknown protocol are ignored, even if they look like duplicate assignments."""
    twice = Assignment(assigned_partitions=[]).encode_versioned(0)
    members = [MemberMetadata(member_id=name, assignment=twice) for name in "ab"]
    log.put(GroupMetadataKey(group="g"), GroupMetadataValue(protocol_type="connect", members=members), 3)
    odd = [MemberMetadata(member_id="c", assignment=b"\xff\xff")]
    log.put(GroupMetadataKey(group="h"), GroupMetadataValue(protocol_type="consumer", members=odd), 3)
    assert found(log) == []


# ---- consumer groups


def consumer(log: Written, *members: str) -> None:
    """Returns a consumer group g in epoch 5."""
    for member in members:
        log.member("g", member)
    log.group_epoch("g", 5)


def test_several_partitions_with_two_owners_are_one_finding(log: Written) -> None:
    consumer(log, "a", "b")
    before = log.current("g", "a", 4, owned=[0, 1, 2])
    here = log.current("g", "b", 5, owned=[1, 2])
    assert found(log) == [
        finding(
            "two-owners",
            [before, here],
            f"In group g, b owns {TOPIC}-1 and 1 more, while a still owns them.",
            group_id="g",
            member_id="b",
            about=(TOPIC, 1),
        )
    ]


def test_a_partition_with_two_owners_in_a_consumer_group_is_found(log: Written) -> None:
    """The log assigns a partition to member b while member a still has to revoke it. The audit reports two owners."""
    consumer(log, "a", "b")
    log.current("g", "a", 4, owned=[0, 1])
    before = log.current("g", "a", 4, owned=[0], revoking=[1])
    here = log.current("g", "b", 5, owned=[1])
    assert found(log) == [
        finding(
            "two-owners",
            [before, here],
            f"In group g, b owns {TOPIC}-1, while a still owns it.",
            group_id="g",
            member_id="b",
            about=(TOPIC, 1),
        )
    ]


def test_a_partition_that_was_revoked_may_have_a_new_owner(log: Written) -> None:
    consumer(log, "a", "b")
    log.current("g", "a", 4, owned=[0, 1])
    log.current("g", "a", 4, owned=[0], revoking=[1])
    log.current("g", "a", 5, owned=[0])
    log.current("g", "b", 5, owned=[1])
    log.put(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"))
    log.current("g", "b", 5, owned=[0, 1])
    assert found(log) == []


def test_a_decreasing_member_epoch_is_found(log: Written) -> None:
    consumer(log, "a")
    before = log.current("g", "a", 5)
    here = log.current("g", "a", 3)
    sentence = "The member epoch of member a of group g fell from 5 to 3."
    assert found(log) == [
        finding("member-epoch-decreased", [before, here], sentence, group_id="g", member_id="a"),
    ]


def test_epochs_of_members_that_return_may_restart(log: Written) -> None:
    consumer(log, "a")
    log.current("g", "a", 5, owned=[0])
    log.current("g", "a", -2, owned=[0])
    log.put(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"))
    log.put(ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"))
    log.member("g", "a")
    log.current("g", "a", 0)
    log.current("g", "a", 5, owned=[0])
    assert found(log) == []


def test_a_decreasing_group_epoch_is_found(log: Written) -> None:
    before = log.group_epoch("g", 5)
    here = log.group_epoch("g", 4)
    sentence = "The group epoch of group g fell from 5 to 4."
    assert found(log) == [finding("group-epoch-decreased", [before, here], sentence, group_id="g")]


def assignment(log: Written, epoch: int) -> Any:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id="g")
    return log.put(key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))


def test_a_decreasing_assignment_epoch_is_found(log: Written) -> None:
    log.group_epoch("g", 5)
    before, here = assignment(log, 5), assignment(log, 4)
    sentence = "The assignment epoch of group g fell from 5 to 4."
    assert found(log) == [finding("assignment-epoch-decreased", [before, here], sentence, group_id="g")]


def test_an_assignment_epoch_above_the_group_epoch_is_found(log: Written) -> None:
    group = log.group_epoch("g", 5)
    here = assignment(log, 6)
    sentence = "The assignment epoch of group g is 6, above the group epoch 5."
    assert found(log) == [finding("assignment-epoch-ahead", [group, here], sentence, group_id="g")]


def test_a_member_epoch_above_the_group_epoch_is_found(log: Written) -> None:
    log.member("g", "a")
    group = log.group_epoch("g", 5)
    here = log.current("g", "a", 6)
    sentence = "The member epoch of member a of group g is 6, above the group epoch 5."
    assert found(log) == [finding("member-epoch-ahead", [group, here], sentence, group_id="g", member_id="a")]


def test_epochs_restart_after_the_removal_of_the_group(log: Written) -> None:
    """A group is removed, and a new group with the same name begins with lower epochs. This is no finding, even if the
    new group has another protocol.
    """
    log.group_epoch("g", 5)
    assignment(log, 5)
    log.put(ConsumerGroupTargetAssignmentMetadataKey(group_id="g"))
    log.put(ConsumerGroupMetadataKey(group_id="g"))
    log.generation("g", 2, a=[0])
    log.put(GroupMetadataKey(group="g"))
    log.group_epoch("g", 2)
    assignment(log, 2)
    assert found(log) == []


def test_a_group_removed_before_its_members_is_found(log: Written) -> None:
    """The log has a tombstone of a group that still has members. The engine would refuse to replay it, so the audit
    reports it.
    """
    consumer(log, "a")
    here = log.put(ConsumerGroupMetadataKey(group_id="g"))
    (one,) = found(log)
    assert one[:12] == finding("unreplayable-record", [here], "", group_id="g")[:12]
    assert one.evidence == (here,)
    assert one.sentence.startswith("The record at offset 2 of __consumer_offsets-0 contradicts earlier records: ")


# ---- streams and share groups


def test_an_active_task_with_two_owners_is_found(log: Written) -> None:
    """Owners of standby tasks do not count."""
    tasks = [TaskIds(subtopology_id="0", partitions=[3])]
    value = StreamsGroupCurrentMemberAssignmentValue(member_epoch=1, active_tasks=tasks)
    before = log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="a"), value)
    standby = StreamsGroupCurrentMemberAssignmentValue(member_epoch=1, standby_tasks=tasks)
    log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="c"), standby)
    here = log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="b"), value)
    assert found(log) == [
        finding(
            "two-owners",
            [before, here],
            "In group s, b owns 0-3, while a still owns it.",
            group_id="s",
            member_id="b",
            about=("0", 3),
        )
    ]


def streams_member(log: Written, member_id: str, process_id: str) -> None:
    value = StreamsGroupMemberMetadataValue(process_id=process_id)
    log.put(StreamsGroupMemberMetadataKey(group_id="s", member_id=member_id), value)


def test_a_task_that_a_process_has_twice_is_found(log: Written) -> None:
    """A process has an active task and a standby of the same task. The audit reports this even while the standby is
    revoked.

    A standby task in another process is legal.
    """
    for member_id, process_id in (("a", "p"), ("b", "p"), ("c", "q")):
        streams_member(log, member_id, process_id)
    tasks = [TaskIds(subtopology_id="0", partitions=[3, 4])]
    active = StreamsGroupCurrentMemberAssignmentValue(member_epoch=1, active_tasks=tasks)
    before = log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="a"), active)
    copies = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=1, standby_tasks_pending_revocation=[TaskIds(subtopology_id="0", partitions=[4])]
    )
    log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="c"), copies)
    here = log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="b"), copies)
    sentence = "In group s, b has task 0-4, which a of the same process also has."
    kind = "task-twice-in-process"
    assert found(log) == [finding(kind, [before, here], sentence, group_id="s", member_id="b", about=("0", 4))]


def test_a_task_that_a_member_has_in_two_roles_is_found(log: Written) -> None:
    streams_member(log, "a", "p")
    tasks = [TaskIds(subtopology_id="0", partitions=[1])]
    value = StreamsGroupCurrentMemberAssignmentValue(member_epoch=1, active_tasks=tasks, standby_tasks=tasks)
    here = log.put(StreamsGroupCurrentMemberAssignmentKey(group_id="s", member_id="a"), value)
    sentence = "In group s, a has task 0-1, which it already has in another role."
    kind = "task-twice-in-process"
    assert found(log) == [finding(kind, [here], sentence, group_id="s", member_id="a", about=("0", 1))]


def test_a_topology_without_its_group_is_found(log: Written) -> None:
    """The topology of a group must be removed together with the group."""
    kept = log.put(StreamsGroupTopologyKey(group_id="s"), StreamsGroupTopologyValue(epoch=0))
    for group_id in ("s", "t"):
        log.put(StreamsGroupMetadataKey(group_id=group_id), StreamsGroupMetadataValue(epoch=2))
    log.put(StreamsGroupTopologyKey(group_id="t"), StreamsGroupTopologyValue(epoch=0))
    log.put(StreamsGroupTargetAssignmentMetadataKey(group_id="s"))
    log.put(StreamsGroupMetadataKey(group_id="s"))
    sentence = "The topology of group s remains, but the group was removed."
    assert found(log) == [finding("topology-without-group", [kept], sentence, group_id="s")]


def test_a_decreasing_epoch_of_a_streams_group_is_found(log: Written) -> None:
    before = log.put(StreamsGroupMetadataKey(group_id="s"), StreamsGroupMetadataValue(epoch=3))
    here = log.put(StreamsGroupMetadataKey(group_id="s"), StreamsGroupMetadataValue(epoch=2))
    sentence = "The group epoch of group s fell from 3 to 2."
    assert found(log) == [finding("group-epoch-decreased", [before, here], sentence, group_id="s")]


def test_a_decreasing_topology_epoch_is_found(log: Written) -> None:
    before = log.put(StreamsGroupTopologyKey(group_id="s"), StreamsGroupTopologyValue(epoch=2))
    here = log.put(StreamsGroupTopologyKey(group_id="s"), StreamsGroupTopologyValue(epoch=1))
    sentence = "The topology epoch of group s fell from 2 to 1."
    assert found(log) == [finding("topology-epoch-decreased", [before, here], sentence, group_id="s")]


def test_a_decreasing_epoch_of_a_share_group_is_found(log: Written) -> None:
    before = log.put(ShareGroupMetadataKey(group_id="s"), ShareGroupMetadataValue(epoch=2))
    here = log.put(ShareGroupMetadataKey(group_id="s"), ShareGroupMetadataValue(epoch=1))
    sentence = "The group epoch of group s fell from 2 to 1."
    assert found(log) == [finding("group-epoch-decreased", [before, here], sentence, group_id="s")]


PLACE: dict[str, Any] = {"group_id": "s", "topic_id": TOPIC_ID, "partition": 2}


@pytest.mark.parametrize(("name", "value"), [("snapshot", (8, 3, 4)), ("state", (10, 2, 4)), ("leader", (10, 3, 3))])
def test_decreasing_epochs_of_share_partitions_are_found(name: str, value: tuple[int, int, int]) -> None:
    log = share_log()
    before = log.put(ShareSnapshotKey(**PLACE), ShareSnapshotValue(snapshot_epoch=9, state_epoch=3, leader_epoch=4))
    snapshot, state, leader = value
    batches = [StateBatch(first_offset=0, last_offset=1)]
    here = log.put(
        ShareSnapshotKey(**PLACE),
        ShareSnapshotValue(snapshot_epoch=snapshot, state_epoch=state, leader_epoch=leader, state_batches=batches),
    )
    was, now = {"snapshot": (9, 8), "state": (3, 2), "leader": (4, 3)}[name]
    sentence = f"The {name} epoch of {TOPIC}-2 in share group s fell from {was} to {now}."
    about = (TOPIC, 2)
    assert found(log) == [finding(f"{name}-epoch-decreased", [before, here], sentence, group_id="s", about=about)]


def test_epochs_of_share_partitions_may_increase_and_restart_with_an_initialization() -> None:
    log = share_log()
    log.put(ShareSnapshotKey(**PLACE), ShareSnapshotValue(snapshot_epoch=9, state_epoch=3, leader_epoch=4))
    log.put(ShareUpdateKey(**PLACE), ShareUpdateValue(snapshot_epoch=9, leader_epoch=5))
    log.put(ShareUpdateKey(**PLACE), ShareUpdateValue(snapshot_epoch=9, leader_epoch=-1))
    log.put(ShareSnapshotKey(**PLACE), ShareSnapshotValue(snapshot_epoch=10, state_epoch=4, leader_epoch=0))
    log.put(ShareSnapshotKey(**PLACE))
    log.put(ShareSnapshotKey(**PLACE), ShareSnapshotValue(snapshot_epoch=0, state_epoch=0, leader_epoch=0))
    assert found(log) == []


BATCHES = [
    StateBatch(first_offset=10, last_offset=14, delivery_state=0, delivery_count=2),
    StateBatch(first_offset=15, last_offset=19, delivery_state=2, delivery_count=1),
]
WHERE = f"In {TOPIC}-2 of share group s,"


def snapshot(batches: Sequence[StateBatch] = BATCHES, start_offset: int = 10) -> ShareSnapshotValue:
    return ShareSnapshotValue(snapshot_epoch=1, leader_epoch=1, start_offset=start_offset, state_batches=batches)


def update(batches: Sequence[tuple[int, int, int, int]] = (), start_offset: int = -1) -> ShareUpdateValue:
    return ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=-1,
        start_offset=start_offset,
        state_batches=[
            UpdateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("share-start-offset-decreased", update(start_offset=9), "the start offset fell from 10 to 9"),
        ("share-start-offset-decreased", snapshot(start_offset=9), "the start offset fell from 10 to 9"),
        (
            "delivery-count-decreased",
            snapshot([StateBatch(first_offset=10, last_offset=14, delivery_count=1), BATCHES[1]]),
            "the delivery count of the record at offset 10 fell from 2 to 1",
        ),
        (
            "delivery-count-decreased",
            snapshot([StateBatch(first_offset=10, last_offset=12, delivery_count=2), BATCHES[1]]),
            "the delivery count of the record at offset 13 fell from 2 to 0",
        ),
        (
            "record-acknowledged-twice",
            update([(12, 16, 2, 3)]),
            "the record at offset 15 was complete after 1 delivery, but now has 3",
        ),
        (
            "record-acknowledged-twice",
            snapshot([BATCHES[0], StateBatch(first_offset=15, last_offset=19, delivery_count=2)]),
            "the record at offset 15 was complete after 1 delivery, but now has 2",
        ),
        (
            "share-batches-overlap",
            update([(20, 22, 0, 1), (22, 23, 2, 1)]),
            "a record lists offsets 22 to 23 after offset 22",
        ),
        ("share-batches-overlap", update([(22, 21, 0, 1)]), "a record lists offsets 22 to 21 after offset -1"),
    ],
)
def test_deliveries_that_move_backwards_are_found(kind: str, value: Any, sentence: str) -> None:
    log = share_log()
    before = log.put(ShareSnapshotKey(**PLACE), snapshot())
    key = ShareSnapshotKey if isinstance(value, ShareSnapshotValue) else ShareUpdateKey
    here = log.put(key(**PLACE), value)
    expected = finding(kind, [before, here], f"{WHERE} {sentence}.", group_id="s", about=(TOPIC, 2))
    assert found(log) == [expected]


def test_deliveries_that_advance_are_no_findings() -> None:
    """Late writes with lower delivery counts are legal. An initialization may reset all counts."""
    log = share_log()
    log.put(ShareSnapshotKey(**PLACE), snapshot())
    log.put(ShareUpdateKey(**PLACE), update([(10, 12, 0, 3), (13, 14, 4, 2), (15, 19, 2, 1)]))
    log.put(ShareUpdateKey(**PLACE), update([(10, 12, 0, 1)], start_offset=12))
    batches = [
        StateBatch(first_offset=12, last_offset=12, delivery_count=3),
        StateBatch(first_offset=13, last_offset=14, delivery_state=4, delivery_count=2),
        BATCHES[1],
    ]
    log.put(ShareSnapshotKey(**PLACE), snapshot(batches, start_offset=12))
    log.put(ShareSnapshotKey(**PLACE), ShareSnapshotValue(snapshot_epoch=1, start_offset=3))
    log.put(ShareUpdateKey(**PLACE), update([(15, 19, 2, 5)]))
    assert found(log) == []


def listing(**lists: Sequence[str]) -> ShareGroupStatePartitionMetadataValue:
    value = ShareGroupStatePartitionMetadataValue()
    for name in lists:
        entry: Any = TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="t", partitions=[2])
        if name == "deleting":
            entry = TopicInfo(topic_id=TOPIC_ID, topic_name="t")
        setattr(value, f"{name}_topics", [entry])
    return value


def test_a_share_state_that_no_group_lists_is_found(log: Written) -> None:
    """The log has the state of a share partition, but no group lists the partition as initializing, initialized or
    deleting. The audit reports it, because the coordinator would never delete this state.
    """
    states = Written(SHARE_GROUP_STATE, clock=log)
    here = states.put(ShareSnapshotKey(**PLACE), snapshot())
    log.group_epoch("g", 1)
    sentence = f"{TOPIC}-2 has a state in share group s, which does not list it."
    expected = finding("share-state-without-group", [here], sentence, group_id="s", about=(TOPIC, 2))
    assert found(log, states) == [expected]
    assert found(states) == [], "without the log of groups, the audit cannot know"
    for name in ("initializing", "initialized", "deleting"):
        log.put(ShareGroupStatePartitionMetadataKey(group_id="s"), listing(**{name: ()}))
        assert found(log, states) == []
    log.put(ShareGroupStatePartitionMetadataKey(group_id="s"))
    assert found(log, states) == [expected]
    states.put(ShareSnapshotKey(**PLACE))
    assert found(log, states) == []


def test_an_initialization_that_does_not_complete_is_found(log: Written) -> None:
    """A share partition is still initializing one minute and the grace period after the record that lists it. The audit
    reports the partition.
    """
    here = log.put(ShareGroupStatePartitionMetadataKey(group_id="s"), listing(initializing=()))
    late_ms = here.timestamp_ms + 60_000 + GRACE_MS
    assert found(log, now_ms=late_ms) == []
    sentence = f"Share partitions of {TOPIC} in group s are initializing for {60_001 + GRACE_MS} ms."
    kind = "share-initialization-not-completed"
    assert found(log, now_ms=late_ms + 1) == [finding(kind, [here], sentence, group_id="s", about=(TOPIC, 2))]
    log.put(ShareGroupStatePartitionMetadataKey(group_id="s"), listing(initialized=()))
    assert found(log, now_ms=late_ms + 1) == []


# ---- compacted logs


def test_a_compacted_log_is_judged_by_its_remaining_records(log: Written) -> None:
    """After compaction, the newest record of each key is valid even if earlier records of the key are missing."""
    log.next_offset = 40
    log.current("g", "a", 9, owned=[0])  # later records replaced the member, and the group epoch of that time
    log.next_offset = 50
    log.group_epoch("g", 12)
    before = log.current("g", "b", 12, owned=[1])
    log.next_offset = 70
    here = log.current("g", "a", 12, owned=[1])
    (one,) = found(log)
    assert (one.kind, one.evidence) == ("two-owners", (before, here))
