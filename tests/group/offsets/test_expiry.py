"""Expiration of offsets and of empty groups, and the bound on the work of a slice."""

from __future__ import annotations

import pytest

from kcore.group.classic.states import GroupState
from kcore.group.offsets import expiry, work
from kcore.group.offsets.expiry import expire, is_expired
from kcore.protocol.records.group_metadata import GroupMetadataKey
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.runtime import Outcome
from kcore_ext.group.offsets import OffsetAndMetadata
from tests.group.offsets.test_groups import Members
from tests.group.offsets.test_offset_commit import key
from tests.group.offsets.world import OffsetsContext
from tests.harness import WALL_MS

MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
GROUP = GroupMetadataKey(group="g")


@pytest.fixture
def context() -> OffsetsContext:
    settings = {
        "offsets.retention.minutes": 60,
        "group.initial.rebalance.delay.ms": 0,
        "group.max.session.timeout.ms": 1_000_000_000,
    }
    return OffsetsContext(settings, {"topic": 5000, "other": 1})


def gone(context: OffsetsContext) -> list[OffsetCommitKey | GroupMetadataKey]:
    """Returns the keys of the tombstones that were written since the last call."""
    return [k for k, v in context.records() if v is None]


def stable(context: OffsetsContext, monkeypatch: pytest.MonkeyPatch, *args: object) -> Members:
    monkeypatch.setattr("tests.group.offsets.test_groups.SESSION_MS", 900_000_000)
    members = Members(context, *args)  # type: ignore[arg-type]
    members.bring("Stable")
    context.records()
    return members


@pytest.mark.parametrize(
    ("commit_ms", "expire_ms", "base_ms", "now_ms", "expected"),
    [
        (0, -1, None, 99, False),
        (0, -1, None, 100, True),
        (50, -1, None, 100, False),
        (0, -1, 50, 100, False),
        (0, -1, 50, 150, True),
        (90, -1, 0, 100, True),  # the base time applies, however recent the commit
        (0, 500, None, 499, False),  # its own expiration time precedes the retention
        (0, 500, 0, 499, False),
        (400, 401, None, 401, True),
    ],
)
def test_an_offset_expires_by_its_own_time_or_the_retention(commit_ms, expire_ms, base_ms, now_ms, expected):
    offset = OffsetAndMetadata(0, 0, -1, "", commit_ms, expire_ms, bytes(16))
    assert is_expired(offset, base_ms, now_ms, 100) is expected


# ---- the timer


def test_the_first_run_is_one_interval_after_the_load(context):
    context.commit_offsets("g", {"topic": {0: 1}}, version=4, retention_ms=0)
    context.advance(CHECK_MS - 1)
    assert gone(context) == []
    context.advance(1)
    assert gone(context) == [key(0), GROUP]


def test_a_run_starts_every_interval(context):
    for _ in range(3):
        context.commit_offsets("g", {"topic": {0: 1}}, version=4, retention_ms=0)
        context.advance(CHECK_MS - 1)
        assert gone(context) == []
        context.advance(1)
        assert gone(context) == [key(0), GROUP]
    assert context.machine.offsets.expirations == 3


def test_a_load_restarts_the_interval_and_leaves_one_timer(context):
    context.commit_offsets("g", {"topic": {0: 1}}, version=4, retention_ms=0)
    context.advance(CHECK_MS - 1)
    context.restart()
    context.advance(CHECK_MS - 1)
    assert gone(context) == []
    assert len(context.wheel) == 1
    context.advance(1)
    assert gone(context) == [key(0), GROUP]
    assert len(context.wheel) == 1


def test_after_an_unload_no_timer_fires(context):
    context.commit_offsets("g", {"topic": {0: 1}}, version=4, retention_ms=0)
    context.unload()
    context.records()
    context.advance(10 * CHECK_MS)
    assert gone(context) == []


def test_a_failed_run_is_repeated_after_the_interval(context, monkeypatch, caplog):
    context.commit_offsets("g", {"topic": {0: 1}}, version=4, retention_ms=0)
    group = context.machine.groups["g"]
    monkeypatch.setattr(type(group), "offset_expiration_base", lambda self: 1 // 0)
    context.advance(CHECK_MS)
    assert gone(context) == []
    assert "offsets: shard __consumer_offsets-0 cannot remove expired offsets" in caplog.text
    monkeypatch.undo()
    context.advance(CHECK_MS)
    assert gone(context) == [key(0), GROUP]


def test_a_run_ended_by_a_failed_commit_is_followed_by_one_of_the_reloaded_state(context, monkeypatch):
    runs = []

    def counted(machine):
        runs.append(machine)
        return expire(machine)

    monkeypatch.setattr(expiry, "expire", counted)
    context.commit_offsets("g", {"topic": {0: 1}}, version=4, retention_ms=0)
    context.fail_next_commit()
    context.advance(CHECK_MS)
    assert gone(context) == []
    assert context.offset("g", "topic", 0) == 1
    context.advance(CHECK_MS)
    assert gone(context) == [key(0), GROUP]
    assert len(runs) == 2
    assert runs[0] is not runs[1] is context.machine
    context.advance(CHECK_MS)
    assert len(runs) == 3


# ---- expired offsets, by group


def test_offsets_of_a_simple_group_expire_by_their_own_commits(context):
    context.commit_offsets("g", {"topic": {0: 1}})
    context.advance(30 * MINUTE_MS)
    context.commit_offsets("g", {"topic": {1: 1}})
    context.advance(30 * MINUTE_MS - 1)
    assert gone(context) == []
    context.advance(1)
    assert gone(context) == [key(0)]
    context.advance(30 * MINUTE_MS)
    assert gone(context) == [key(1), GROUP]
    assert context.machine.groups == {}
    context.assert_restart_changes_nothing()


def test_a_new_commit_restarts_the_retention_time(context):
    context.commit_offsets("g", {"topic": {0: 1}})
    context.advance(50 * MINUTE_MS)
    context.commit_offsets("g", {"topic": {0: 1}})
    context.advance(50 * MINUTE_MS)
    assert gone(context) == []


def test_retention_of_an_emptied_group_starts_when_it_became_empty(context, monkeypatch):
    members = stable(context, monkeypatch)
    context.commit_offsets("g", {"topic": {0: 1}}, generation=members.generation, member=members.ids[0])
    context.advance(300 * MINUTE_MS)
    members.leave()
    context.records()
    context.advance(RETENTION_MS - 1)
    assert gone(context) == []
    context.advance(1)
    assert gone(context) == [key(0), GROUP]


def test_the_time_at_which_a_group_became_empty_survives_a_restart(context, monkeypatch):
    members = stable(context, monkeypatch)
    context.commit_offsets("g", {"topic": {0: 1}}, generation=members.generation, member=members.ids[0])
    context.advance(300 * MINUTE_MS)
    members.leave()
    context.advance(55 * MINUTE_MS)
    context.restart()
    context.records()
    context.advance(CHECK_MS)
    assert gone(context) == [key(0), GROUP]


def test_an_emptied_group_without_that_time_expires_by_its_commits(context, monkeypatch):
    members = stable(context, monkeypatch)
    context.commit_offsets("g", {"topic": {0: 1}}, generation=members.generation, member=members.ids[0])
    members.leave()
    context.machine.groups["g"].state_timestamp_ms = -1  # as after a record of version 0 or 1
    context.records()
    context.advance(RETENTION_MS)
    assert gone(context) == [key(0), GROUP]


def test_a_stable_group_keeps_offsets_of_subscribed_topics_only(context, monkeypatch):
    members = stable(context, monkeypatch)
    who = {"generation": members.generation, "member": members.ids[0]}
    context.commit_offsets("g", {"topic": {0: 1}, "other": {0: 2}}, **who)
    context.commit_offsets("g", {"topic": {1: 1}}, version=4, retention_ms=0, **who)
    context.records()
    context.advance(RETENTION_MS + CHECK_MS)
    assert gone(context) == [key(0, "other")]
    assert context.fetch("g", None)["topic"].keys() == {0, 1}


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_nothing_expires_during_a_rebalance(context, monkeypatch, state):
    members = stable(context, monkeypatch)
    who = {"generation": members.generation, "member": members.ids[0]}
    context.commit_offsets("g", {"other": {0: 2}}, version=4, retention_ms=0, **who)
    group = context.machine.groups["g"]
    group.transition(GroupState.PREPARING_REBALANCE, "the test wants it")
    if state == "CompletingRebalance":
        group.transition(GroupState.COMPLETING_REBALANCE, "the test wants it")
    context.records()
    context.advance(CHECK_MS)
    assert gone(context) == []


@pytest.mark.parametrize(("protocol_type", "topics"), [("connect", ("topic",)), ("consumer", ())])
def test_members_with_unknown_subscriptions_keep_all_offsets(context, monkeypatch, protocol_type, topics):
    members = stable(context, monkeypatch, protocol_type, topics)
    who = {"generation": members.generation, "member": members.ids[0]}
    context.commit_offsets("g", {"other": {0: 2}}, version=4, retention_ms=0, **who)
    context.records()
    context.advance(RETENTION_MS * 2)
    assert gone(context) == []
    members.leave()
    context.records()
    context.advance(CHECK_MS)
    assert gone(context) == [key(0, "other"), GROUP]


# ---- groups without offsets


def test_an_empty_group_without_offsets_is_deleted_by_the_first_run(context, monkeypatch):
    members = stable(context, monkeypatch)
    context.advance(CHECK_MS)
    assert gone(context) == []
    members.leave()
    context.records()
    context.advance(CHECK_MS)
    assert gone(context) == [GROUP]
    context.assert_restart_changes_nothing()


def test_a_group_with_only_an_assigned_id_is_deleted(context):
    members = Members(context)
    given = members.join(0).response
    assert given.error_code == 79
    context.records()
    context.advance(CHECK_MS)
    assert gone(context) == [GROUP]
    members.ids[0] = given.member_id
    assert members.join(0).response.error_code == 25


# ---- open transactions


def test_an_open_transaction_protects_its_partitions_and_the_group(context):
    context.commit_offsets("g", {"topic": {0: 1, 1: 2}})
    context.commit_in_transaction("g", {"topic": {0: 3}})
    context.records()
    context.advance(RETENTION_MS)
    assert gone(context) == [key(1)]
    context.end_transaction(7, False)
    context.advance(CHECK_MS)
    assert gone(context) == [key(0), GROUP]


def test_pending_offsets_alone_protect_the_group(context):
    context.commit_in_transaction("g", {"topic": {0: 3}})
    context.records()
    context.advance(RETENTION_MS * 2)
    assert gone(context) == []
    context.restart()
    context.advance(CHECK_MS)
    assert gone(context) == []
    context.end_transaction(7, False)
    context.advance(CHECK_MS)
    assert gone(context) == [GROUP]


def test_retention_of_a_transactional_offset_starts_at_its_commit(context):
    context.commit_in_transaction("g", {"topic": {0: 3}})
    context.advance(RETENTION_MS)
    context.end_transaction(7, True)
    context.records()
    context.advance(CHECK_MS)
    assert gone(context) == [key(0), GROUP]


# ---- slices


def commit_many(context: OffsetsContext, group: str, count: int) -> None:
    value = OffsetCommitValue(offset=1, commit_timestamp=WALL_MS)
    for partition in range(count):
        context.machine.replay(partition, -1, OffsetCommitKey(group=group, topic="topic", partition=partition), value)


def apply(context: OffsetsContext, outcome: Outcome | None) -> int:
    """Replays the records that a slice has produced, as the runtime does. Returns the number of records."""
    if outcome is None:
        return 0
    for record in outcome.records:
        context.machine.replay(0, -1, record.key, record.value)
    return len(outcome.records)


def test_a_large_group_expires_in_bounded_slices(context):
    commit_many(context, "g", 2_500)
    context.clock.advance(RETENTION_MS)
    context.now.update()
    sizes = [apply(context, outcome) for outcome in expire(context.machine)]
    assert max(sizes) <= work.SLICE_STEPS
    assert sum(sizes) == 2_501
    assert len(sizes) == 3
    assert context.machine.groups == {}


def test_many_groups_are_checked_in_bounded_slices(context):
    for i in range(2_500):
        commit_many(context, f"g{i}", 1)
    assert [apply(context, outcome) for outcome in expire(context.machine)] == [0] * 5
    context.clock.advance(RETENTION_MS)
    context.now.update()
    sizes = [apply(context, outcome) for outcome in expire(context.machine)]
    assert max(sizes) <= work.SLICE_STEPS
    assert sum(sizes) == 5_000
    assert context.machine.groups == {}


def test_long_names_make_small_slices(context):
    group = "g" * 10_000
    commit_many(context, group, 100)
    context.clock.advance(RETENTION_MS)
    context.now.update()
    slices = [outcome for outcome in expire(context.machine) if apply(context, outcome)]
    size_bytes = [sum(len(r.key.encode_key()) for r in outcome.records) for outcome in slices]
    assert max(size_bytes) <= work.SLICE_BYTES
    assert context.machine.groups == {}


def test_changes_during_a_pause_are_respected(context):
    commit_many(context, "g", 2_500)
    context.clock.advance(RETENTION_MS)
    context.now.update()
    run = expire(context.machine)
    assert apply(context, next(run)) == 1_000
    fresh = OffsetCommitValue(offset=2, commit_timestamp=context.now.wall_ms)
    context.machine.replay(9_999, -1, OffsetCommitKey(group="g", topic="topic", partition=1_700), fresh)
    sizes = [apply(context, outcome) for outcome in run]
    assert sum(sizes) == 1_499
    assert context.fetch("g", None) == {"topic": {1_700: (2, -1, "", 0)}}
    assert list(context.machine.groups) == ["g"]


def test_a_group_deleted_during_a_pause_is_skipped(context):
    commit_many(context, "g", 2_500)
    context.clock.advance(RETENTION_MS)
    context.now.update()
    run = expire(context.machine)
    apply(context, next(run))
    for partition in range(1_000, 2_500):
        context.machine.replay(0, -1, OffsetCommitKey(group="g", topic="topic", partition=partition), None)
    context.machine.replay(0, -1, GROUP, None)
    assert sum(apply(context, outcome) for outcome in run) == 0


def test_a_whole_run_through_the_runtime(context):
    context.commit_offsets("g", {"topic": dict.fromkeys(range(3_000), 1)})
    context.commit_offsets("h", {"topic": {0: 1}})
    context.records()
    context.advance(RETENTION_MS)
    removed = gone(context)
    assert len(removed) == 3_003
    assert removed[3_000:] == [GROUP, key(0, group="h"), GroupMetadataKey(group="h")]
    assert context.machine.offsets.expirations == 3_001
    context.assert_restart_changes_nothing()
