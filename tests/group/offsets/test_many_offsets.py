"""Groups with more offsets than one batch can remove, and many groups with offsets of deleted topics."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.offsets import deletion, records, work
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from tests.group.offsets.world import OffsetsContext

PARTITIONS = 40
A_DECISION = 10  # offsets that a decision removes in these tests


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> OffsetsContext:
    context = OffsetsContext(topics={"topic": PARTITIONS})
    context.commit_offsets("g", {"topic": dict.fromkeys(range(PARTITIONS), 1)})
    context.records()
    monkeypatch.setattr(
        context.machine, "max_record_bytes", 2 * A_DECISION * records.tombstone_bytes("g", "topic"), raising=True
    )
    return context


def delete(context: OffsetsContext, *groups: str) -> list[DeletableGroupResult]:
    request = DeleteGroupsRequest(groups_names=groups)
    response: Any = context.call(DeleteGroupsApi(context.shards), request)
    return [*response.results]


def decisions(context: OffsetsContext, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes DeleteGroups append the number of records of each of its steps to a list, and returns this list."""
    counts: list[int] = []
    decide = DeleteGroupsApi.decide

    def counted(self: DeleteGroupsApi, *arguments: Any) -> Any:
        outcome = decide(self, *arguments)
        counts.append(len(outcome.records))
        return outcome

    monkeypatch.setattr(DeleteGroupsApi, "decide", counted)
    return counts


def test_a_group_with_many_offsets_is_deleted_in_several_decisions(
    context: OffsetsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstones of 120,000 offsets do not fit into one batch."""
    counts = decisions(context, monkeypatch)
    assert delete(context, "g") == [DeletableGroupResult(group_id="g")]
    assert counts == [A_DECISION, A_DECISION, A_DECISION, A_DECISION + 1], "the group's own tombstone is the last one"
    written = context.records()
    assert [value for _, value in written] == [None] * (PARTITIONS + 1)
    assert [key.partition for key, _ in written[:-1]] == [*range(PARTITIONS)]
    assert "g" not in context.machine.groups
    assert not context.machine.offsets.offset_count
    context.assert_restart_changes_nothing()


def test_offsets_of_open_transactions_are_removed_too(context: OffsetsContext, monkeypatch: pytest.MonkeyPatch) -> None:
    context.commit_in_transaction("t", {"topic": dict.fromkeys(range(25), 2)}, producer_id=7)
    counts = decisions(context, monkeypatch)
    assert delete(context, "t") == [DeletableGroupResult(group_id="t")]
    assert counts == [A_DECISION, A_DECISION, 6]
    assert not context.machine.offsets.group_has_pending("t")


def test_the_deletion_ends_if_the_log_refuses_a_part(context: OffsetsContext, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = decisions(context, monkeypatch)
    context.shard._max_batch_bytes = 70  # a batch has 61 bytes without records
    (result,) = delete(context, "g")
    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert counts == [A_DECISION]
    assert context.machine.offsets.count("g") == PARTITIONS


def test_a_long_deletion_runs_in_slices(context: OffsetsContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, the deletion of ten groups with 8,000 offsets each would take 116 ms."""
    monkeypatch.setattr("kcore.group.apis.delete_groups.OFFSET_COST_US", 10_000)
    context.slices.requests.enabled = True
    monkeypatch.setattr(context, "finish", lambda: None)
    request = DeleteGroupsRequest(groups_names=["g"])
    call = context.send(DeleteGroupsApi(context.shards), request)
    left = [context.machine.offsets.count("g")]
    while context.slices.step():
        left.append(context.machine.offsets.count("g"))
    context.commit()
    assert call.response.results == (DeletableGroupResult(group_id="g"),)
    assert left[:4] == [30, 20, 10, 0]


def test_the_comparison_with_many_deleted_topics_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing a group's topics with many deleted topics counts as work of the slice. Otherwise one slice would
    compare 10,000 deleted topics with the topics of 1,000 groups.
    """
    monkeypatch.setattr(work, "SLICE_STEPS", 4)
    monkeypatch.setattr(deletion, "TOPICS_PER_STEP", 2)
    topics = [f"t{number}" for number in range(6)]
    context = OffsetsContext(topics=dict.fromkeys(topics, 1))
    groups = ["a", "b", "c"]
    for group in groups:
        context.commit_offsets(group, {topic: {0: 1} for topic in topics})
    gone = [(f"gone{number}", bytes(16)) for number in range(6)]
    context.machine.deleted_topics = gone
    assert len([*deletion.delete_topics(context.machine)]) == len(groups), "each group needs four steps"


def test_each_partition_of_a_deleted_topic_is_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice continues where the previous one ended."""
    monkeypatch.setattr(work, "SLICE_STEPS", 4)
    context = OffsetsContext(topics={"topic": 20})
    context.commit_offsets("g", {"topic": dict.fromkeys(range(20), 1)})
    looked_at: list[int] = []
    belongs = deletion._belongs

    def counted(offsets: Any, group_id: str, topic: str, partition: int, topic_id: bytes) -> bool:
        looked_at.append(partition)
        return belongs(offsets, group_id, topic, partition, topic_id)

    monkeypatch.setattr(deletion, "_belongs", counted)
    context.delete_topic("topic")
    assert looked_at == [*range(20)]
    assert not context.machine.offsets.offset_count
