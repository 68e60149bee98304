"""The deletion of a topic removes its offsets from every group. Offsets of a later topic with the same name stay."""

from __future__ import annotations

import pytest

from kcore.group.offsets import work
from kcore.group.offsets.deletion import delete_topics, on_topic_deleted
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.runtime import TopicInfo
from tests.group.offsets.test_expiry import apply
from tests.group.offsets.test_groups import Members
from tests.group.offsets.test_offset_commit import key
from tests.group.offsets.world import OffsetsContext

OLD = b"-" * 11 + b"topic"


@pytest.fixture
def context() -> OffsetsContext:
    return OffsetsContext({"group.initial.rebalance.delay.ms": 0}, {"topic": 3, "other": 1})


def test_materialised_and_pending_offsets_are_removed_in_groups_of_every_kind(context):
    members = Members(context)
    members.bring("Stable")
    who = {"generation": members.generation, "member": members.ids[0]}
    context.commit_offsets("g", {"topic": {0: 1}, "other": {0: 2}}, **who)
    context.commit_offsets("simple", {"topic": {0: 3, 1: 4}})
    context.commit_in_transaction("pending", {"topic": {0: 5}})
    context.commit_in_transaction("simple", {"topic": {1: 6, 2: 7}}, producer_id=8)
    context.records()
    context.delete_topic("topic")
    assert context.records() == [
        (key(0), None),
        (key(0, group="simple"), None),
        (key(1, group="simple"), None),
        (key(2, group="simple"), None),
        (key(0, group="pending"), None),
    ]
    assert context.fetch("g", None) == {"other": {0: (2, -1, "", 0)}}
    for producer_id in (7, 8):
        context.end_transaction(producer_id, True)
    assert context.state()["offsets"].keys() == {"g"}
    assert set(context.machine.groups) == {"g", "simple", "pending"}
    context.assert_restart_changes_nothing()


def test_offsets_of_a_recreated_topic_stay(context):
    context.commit_offsets("old", {"topic": {0: 1}})
    context.commit_in_transaction(
        "legacy", {"topic": {0: 2}}
    )  # without an id, the offset belongs to any topic with that name
    context.end_transaction(7, True)
    context.topics._topics["topic"] = TopicInfo("topic", b"2" * 16, 3)
    context.commit_offsets("new", {"topic": {0: 3}})
    context.records()
    context.machine.deleted_topics = [("topic", OLD)]
    outcomes = list(delete_topics(context.machine))
    assert [r.key.group for outcome in outcomes for r in outcome.records] == ["old", "legacy"]


def test_nothing_to_delete_writes_nothing(context):
    context.commit_offsets("g", {"other": {0: 1}})
    context.records()
    context.delete_topic("topic")
    assert context.records() == []


def test_a_large_shard_is_processed_in_bounded_slices(context):
    value = OffsetCommitValue(offset=1)
    for i in range(2_500):
        context.machine.replay(i, -1, OffsetCommitKey(group="large", topic="topic", partition=i), value)
        context.machine.replay(i, -1, OffsetCommitKey(group=f"g{i}", topic="topic", partition=0), value)
        context.machine.replay(i, -1, OffsetCommitKey(group=f"other{i}", topic="other", partition=0), value)
    context.machine.deleted_topics = [("topic", OLD)]
    run = delete_topics(context.machine)
    sizes = [apply(context, outcome) for outcome in run]
    assert max(sizes) <= work.SLICE_STEPS
    assert sum(sizes) == 5_000
    assert context.machine.offsets.offset_count == 2_500


def test_commits_to_a_recreated_topic_during_a_pause_stay(context):
    value = OffsetCommitValue(offset=1, topic_id=OLD)
    for i in range(1_500):
        context.machine.replay(i, -1, OffsetCommitKey(group="g", topic="topic", partition=i), value)
    context.machine.deleted_topics = [("topic", OLD)]
    run = delete_topics(context.machine)
    assert apply(context, next(run)) == 999  # the deletion of the group itself is a step, too
    for partition, topic_id in ((0, bytes(16)), (1_200, b"2" * 16)):
        fresh = OffsetCommitValue(offset=2, topic_id=topic_id)
        context.machine.replay(9_000, -1, OffsetCommitKey(group="g", topic="topic", partition=partition), fresh)
    assert sum(apply(context, outcome) for outcome in run) == 500
    assert set(context.machine.offsets.topics("g")["topic"]) == {0, 1_200}


def test_a_failed_decision_is_not_repeated_forever(context):
    for i in range(1_500):
        value = OffsetCommitValue(offset=1, topic_id=OLD)
        context.machine.replay(i, -1, OffsetCommitKey(group="g", topic="topic", partition=i), value)
    context.machine.deleted_topics = [("topic", OLD)]
    slices = list(delete_topics(context.machine))  # the test replays none of these records
    assert sum(len(outcome.records) for outcome in slices) == 1_500


def test_shards_without_offsets_get_no_slices(context):
    """The deletion of a topic queues a slice only on shards that have offsets of it. Otherwise 10,000 deleted topics
    would take a turn of the event loop for each topic and shard.
    """
    on_topic_deleted(context.shards, "topic", OLD)
    assert len(context.slices) == 0
    context.commit_offsets("g", {"topic": {0: 1}})
    on_topic_deleted(context.shards, "topic", OLD)
    assert len(context.slices) == 1


def test_topics_that_are_deleted_together_share_one_pass_over_the_groups(context):
    for group in ("g", "h"):
        context.commit_offsets(group, {"topic": {0: 1, 2: 1}, "other": {0: 2}})
    context.records()
    queued = len(context.shard.slices)
    for name in ("topic", "other"):
        info = context.topics._topics.pop(name)
        on_topic_deleted(context.shards, name, info.topic_id)
    assert len(context.shard.slices) == queued + 1
    context.finish()
    removed = [(0, "topic"), (2, "topic"), (0, "other")]
    assert context.records() == [
        (key(partition, group=group, topic=topic), None) for group in ("g", "h") for partition, topic in removed
    ]
    assert context.state()["offsets"] == {}
    context.assert_restart_changes_nothing()
