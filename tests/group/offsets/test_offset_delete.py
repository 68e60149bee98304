"""OffsetDelete: permissions, refusals and written records. test_groups.py covers groups with members."""

from __future__ import annotations

import pytest

from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.offset_delete import OffsetDeleteApi
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kcore.protocol.records.group_metadata import GroupMetadataKey
from tests.group.offsets.test_offset_commit import Denies, key
from tests.group.offsets.world import OffsetsContext


@pytest.fixture
def context() -> OffsetsContext:
    context = OffsetsContext(topics={"topic": 3, "other": 1})
    context.commit_offsets("g", {"topic": {0: 5, 1: 6}, "other": {0: 7}})
    context.records()
    return context


def test_each_existing_offset_gets_a_tombstone(context):
    assert context.delete_offsets("g", {"topic": [0, 2], "other": [0]}) == {
        "topic": [(0, 0), (2, 0)],
        "other": [(0, 0)],
    }
    assert context.records() == [(key(0), None), (key(0, "other"), None)]
    assert context.fetch("g", None) == {"topic": {1: (6, -1, "", 0)}}
    assert context.machine.offsets.deletions == 2
    context.assert_restart_changes_nothing()


def test_the_group_stays_without_offsets(context):
    context.delete_offsets("g", {"topic": [0, 1], "other": [0]})
    assert list(context.machine.groups) == ["g"]
    assert context.fetch("g", None) == {}


def test_unknown_partitions_return_3_and_the_others_are_deleted(context):
    assert context.delete_offsets("g", {"missing": [0], "topic": [3, -1, 0]}) == {
        "missing": [(0, 3)],
        "topic": [(3, 3), (-1, 3), (0, 0)],
    }
    assert context.records() == [(key(0), None)]


def test_a_duplicate_partition_gets_two_results_and_two_tombstones(context):
    assert context.delete_offsets("g", {"topic": [0, 0]}) == {"topic": [(0, 0), (0, 0)]}
    assert context.records() == [(key(0), None)] * 2


def test_a_topic_without_partitions_is_omitted(context):
    assert context.delete_offsets("g", {"topic": []}) == {}
    assert context.delete_offsets("g", {}) == {}
    assert context.records() == []


def test_a_refused_topic_without_partitions_is_in_the_response(context):
    """As in Kafka, which adds a topic to the response if the topic does not exist or the client may not read it."""
    assert context.delete_offsets("g", {"missing": [], "topic": [], "other": [0]}) == {"missing": [], "other": [(0, 0)]}
    context.authorizer = Denies((Operation.READ, ResourceType.TOPIC, "topic"))
    assert context.delete_offsets("g", {"topic": []}) == {"topic": []}


@pytest.mark.parametrize("requested", [{}, {"missing": [0]}, {"topic": [0], "missing": [0]}])
def test_the_group_is_checked_even_if_all_topics_are_refused(context, requested):
    assert context.delete_offsets("nobody", requested) == 69
    assert context.delete_offsets("", requested) == 24


def test_a_pending_offset_is_deleted_too_and_no_marker_restores_it(context):
    context.commit_in_transaction("g", {"topic": {0: 50, 2: 52}})
    context.records()
    assert context.delete_offsets("g", {"topic": [0, 2]}) == {"topic": [(0, 0), (2, 0)]}
    assert context.records() == [(key(0), None), (key(2), None)]
    context.end_transaction(7, True)
    assert context.fetch("g", None) == {"topic": {1: (6, -1, "", 0)}, "other": {0: (7, -1, "", 0)}}
    context.assert_restart_changes_nothing()


def test_deletion_needs_delete_on_the_group_and_read_on_each_topic(context):
    context.authorizer = Denies((Operation.DELETE, ResourceType.GROUP, "g"))
    assert context.delete_offsets("g", {"topic": [0]}) == 30
    context.authorizer = Denies(
        (Operation.READ, ResourceType.TOPIC, "topic"), (Operation.READ, ResourceType.TOPIC, "missing")
    )
    assert context.delete_offsets("g", {"topic": [0, 9], "missing": [0], "other": [0]}) == {
        "topic": [(0, 29), (9, 29)],
        "missing": [(0, 29)],
        "other": [(0, 0)],
    }
    assert context.records() == [(key(0, "other"), None)]


def test_a_duplicate_topic_gets_two_results(context):
    topics = [
        OffsetDeleteRequestTopic(name="topic", partitions=[OffsetDeleteRequestPartition(partition_index=p)])
        for p in (0, 1)
    ]
    response = context.call(context.api(OffsetDeleteApi), OffsetDeleteRequest(group_id="g", topics=topics))
    assert response == OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name="topic", partitions=[OffsetDeleteResponsePartition(partition_index=p)])
            for p in (0, 1)
        ]
    )


def test_a_moved_shard_is_an_error_of_the_whole_response(context):
    context.unload()
    assert context.delete_offsets("g", {"topic": [0]}) == ErrorCode.NOT_COORDINATOR


def test_a_failed_commit_deletes_nothing(context):
    context.fail_next_commit()
    assert context.delete_offsets("g", {"topic": [0]}) == ErrorCode.NOT_COORDINATOR
    assert context.offset("g", "topic", 0) == 5
    context.assert_restart_changes_nothing()


def test_deleting_a_group_deletes_materialised_then_pending_offsets_then_the_group(context):
    context.commit_in_transaction("g", {"topic": {0: 50, 2: 52}})
    context.records()
    response = context.call(DeleteGroupsApi(context.shards), DeleteGroupsRequest(groups_names=["g"]))
    assert [r.error_code for r in response.results] == [0]
    assert context.records() == [
        (key(0), None),
        (key(1), None),
        (key(0, "other"), None),
        (key(2), None),
        (GroupMetadataKey(group="g"), None),
    ]
    assert context.state() == {"groups": [], "count": 0, "offsets": {}, "pending": {}}
    context.assert_restart_changes_nothing()
    context.end_transaction(7, True)
    assert context.state() == {"groups": [], "count": 0, "offsets": {}, "pending": {}}
    context.assert_restart_changes_nothing()
