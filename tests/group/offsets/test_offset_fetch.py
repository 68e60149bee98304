"""OffsetFetch: the response of each version for existing, missing and pending offsets."""

from __future__ import annotations

import pytest

from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kcore.runtime import RequestContext
from tests.group.offsets.test_offset_commit import Denies
from tests.group.offsets.world import OffsetsContext

NO_OFFSET = (-1, -1, "", 0)
UNSTABLE = (-1, -1, "", 88)
DESCRIBE_TOPIC = (Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_GROUP = (Operation.DESCRIBE, ResourceType.GROUP)


@pytest.fixture
def context() -> OffsetsContext:
    context = OffsetsContext(topics={"topic": 3, "other": 1})
    context.commit_offsets("g", {"topic": {0: (5, 2, "note"), 1: 6}, "other": {0: 7}})
    return context


def by_id(context: OffsetsContext, *requested: tuple[bytes, list[int]], group: str = "g") -> OffsetFetchResponse:
    """Sends an OffsetFetch v10."""
    topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=p) for topic_id, p in requested]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    return context.call(context.api(OffsetFetchApi), request, version=10)


def topic_id(context: OffsetsContext, name: str) -> bytes:
    info = context.topics.by_name(name)
    assert info is not None
    return info.topic_id


# ---- missing offsets


def test_missing_groups_topics_and_offsets_are_no_error(context):
    assert context.fetch("nobody", {"topic": [0]}) == {"topic": {0: NO_OFFSET}}
    assert context.fetch("nobody", None) == {}
    assert context.fetch("nobody", {"topic": []}) == {"topic": {}}
    assert context.fetch("g", {"missing": [0], "topic": [2, 99, -1]}) == {
        "missing": {0: NO_OFFSET},
        "topic": {2: NO_OFFSET, 99: NO_OFFSET, -1: NO_OFFSET},
    }
    assert context.fetch("nobody", {"topic": [0]}, member="m", epoch=5) == {"topic": {0: NO_OFFSET}}
    assert context.fetch("", {"topic": [0]}) == {"topic": {0: NO_OFFSET}}
    assert "nobody" not in context.machine.groups


def test_any_client_may_read_offsets_of_a_classic_group(context):
    assert context.fetch("g", {"other": [0]}, member="m", epoch=99) == {"other": {0: (7, -1, "", 0)}}


# ---- versions


@pytest.mark.parametrize("version", range(1, 8))
def test_up_to_v7_a_request_names_one_group(context, version):
    def partition(index: int, offset: int, epoch: int, metadata: str) -> OffsetFetchResponsePartition:
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=epoch if version >= 5 else -1,
            metadata=metadata,
        )

    found = [partition(0, 5, 2, "note"), partition(1, 6, -1, "")]
    other = OffsetFetchResponseTopic(name="other", partitions=[partition(0, 7, -1, "")])
    assert context.fetch_old(version, "g", {"topic": [0, 1, 2]}) == OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="topic", partitions=[*found, partition(2, -1, -1, "")])]
    )
    assert context.fetch_old(version, "g", {}) == OffsetFetchResponse(topics=[])
    if version >= 2:
        assert context.fetch_old(version, "g", None) == OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic(name="topic", partitions=found), other]
        )
    assert context.fetch_old(version, "nobody", {"topic": [0]}) == OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="topic", partitions=[partition(0, -1, -1, "")])]
    )


@pytest.mark.parametrize("version", range(1, 11))
def test_an_error_has_the_form_of_the_version(context, version):
    context.unload()
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=g, topics=None) for g in ("g", "h")])
        assert context.call(context.api(OffsetFetchApi), request, version=version) == OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=g, error_code=16) for g in ("g", "h")]
        )
    elif version >= 2:
        assert context.fetch_old(version, "g", {"topic": [0]}) == OffsetFetchResponse(error_code=16)
    else:
        refused = [
            OffsetFetchResponsePartition(partition_index=p, committed_offset=-1, metadata="", error_code=16)
            for p in (0, 5)
        ]
        assert context.fetch_old(version, "g", {"topic": [0, 5]}) == OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic(name="topic", partitions=refused)]
        )


def test_an_error_of_the_whole_request_has_the_form_of_the_version(context):
    api = context.api(OffsetFetchApi)
    request = OffsetFetchRequest(group_id="g", groups=[OffsetFetchRequestGroup(group_id="h")])
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    assert api.error(RequestContext(7), request, code) == OffsetFetchResponse(error_code=-1)
    assert api.error(RequestContext(8), request, code) == OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="h", error_code=-1)]
    )


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_have_independent_results(context, version):
    context.commit_offsets("h", {"other": {0: 9}})
    context.authorizer = Denies((*DESCRIBE_GROUP, "secret"))
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="h", topics=None),
            OffsetFetchRequestGroup(group_id="secret", topics=None),
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="topic", partition_indexes=[1])]
            ),
            OffsetFetchRequestGroup(group_id="h", topics=None),
        ]
    )

    def found(name: str, partition: int, offset: int) -> OffsetFetchResponseTopics:
        entry = OffsetFetchResponsePartitions(partition_index=partition, committed_offset=offset)
        return OffsetFetchResponseTopics(name=name, partitions=[entry])

    assert context.call(context.api(OffsetFetchApi), request, version=version).groups == (
        OffsetFetchResponseGroup(group_id="h", topics=[found("other", 0, 9)]),
        OffsetFetchResponseGroup(group_id="secret", error_code=30),
        OffsetFetchResponseGroup(group_id="g", topics=[found("topic", 1, 6)]),
        OffsetFetchResponseGroup(group_id="h", topics=[found("other", 0, 9)]),
    )
    assert context.call(context.api(OffsetFetchApi), OffsetFetchRequest(), version=version) == OffsetFetchResponse()


def test_duplicates_get_two_results(context):
    topics = [
        OffsetFetchRequestTopics(name="topic", partition_indexes=[1, 1]),
        OffsetFetchRequestTopics(name="topic", partition_indexes=[1]),
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (group,) = context.call(context.api(OffsetFetchApi), request, version=9).groups
    six = OffsetFetchResponsePartitions(partition_index=1, committed_offset=6)
    assert group.topics == (
        OffsetFetchResponseTopics(name="topic", partitions=[six, six]),
        OffsetFetchResponseTopics(name="topic", partitions=[six]),
    )


# ---- topic ids


def test_by_id_unknown_topics_come_last_with_an_error(context):
    unknown, zero, topic = b"\xff" * 16, bytes(16), topic_id(context, "topic")
    (group,) = by_id(context, (unknown, [0, 1]), (topic, [0, 99]), (zero, [0])).groups

    def none(partition: int, code: int) -> OffsetFetchResponsePartitions:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1, error_code=code)

    five = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=5, committed_leader_epoch=2, metadata="note"
    )
    assert group.topics == (
        OffsetFetchResponseTopics(topic_id=topic, partitions=[five, none(99, 0)]),
        OffsetFetchResponseTopics(topic_id=unknown, partitions=[none(0, 100), none(1, 100)]),
        OffsetFetchResponseTopics(topic_id=zero, partitions=[none(0, 100)]),
    )


def test_by_id_offsets_of_a_deleted_topic_are_missing(context):
    context.topics._topics["topic"] = info = type(context.topics.by_name("topic"))("topic", b"2" * 16, 3)
    context.commit_in_transaction("g", {"topic": {2: 8}})
    context.end_transaction(7, True)  # an id of zeroes matches any topic with that name
    (group,) = by_id(context, (info.topic_id, [0, 2])).groups
    assert [(p.partition_index, p.committed_offset) for p in group.topics[0].partitions] == [(0, -1), (2, 8)]
    assert context.offset("g", "topic", 0) == 5  # by name it still exists


def test_a_fetch_of_all_topics_by_id_returns_the_topics_with_an_id(context):
    del context.topics._topics["topic"]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = context.call(context.api(OffsetFetchApi), request, version=10).groups
    seven = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
    assert group.topics == (OffsetFetchResponseTopics(topic_id=topic_id(context, "other"), partitions=[seven]),)
    assert set(context.fetch("g", None)) == {"topic", "other"}


# ---- permissions


def test_unauthorized_topics_are_refused_or_omitted_from_all_topics(context):
    context.authorizer = Denies((*DESCRIBE_TOPIC, "topic"))
    assert context.fetch("g", {"topic": [0], "other": [0]}) == {
        "other": {0: (7, -1, "", 0)},
        "topic": {0: (-1, -1, "", 29)},
    }
    assert context.fetch("g", None) == {"other": {0: (7, -1, "", 0)}}
    (group,) = by_id(context, (topic_id(context, "topic"), [0]), (b"\xff" * 16, [0])).groups
    assert [t.partitions[0].error_code for t in group.topics] == [29, 100]


def test_a_client_without_describe_on_the_group_gets_no_offsets(context):
    context.authorizer = Denies((*DESCRIBE_GROUP, "g"))
    assert context.fetch("g", {"topic": [0]}) == 30
    assert context.fetch_old(2, "g", None) == OffsetFetchResponse(error_code=30)
    (topic,) = context.fetch_old(1, "g", {"topic": [0]}).topics
    assert [(p.committed_offset, p.error_code) for p in topic.partitions] == [(-1, 30)]
    assert {requested for requested, _, _ in context.authorizer.calls} == {Operation.DESCRIBE}


# ---- open transactions


def test_an_open_transaction_makes_its_partitions_unstable_on_request(context):
    assert context.commit_in_transaction("g", {"topic": {0: 50, 2: 52}}) == [0, 0]
    requested = {"topic": [0, 1, 2]}
    assert context.fetch("g", requested)["topic"] == {0: (5, 2, "note", 0), 1: (6, -1, "", 0), 2: NO_OFFSET}
    assert context.fetch("g", requested, stable=True)["topic"] == {0: UNSTABLE, 1: (6, -1, "", 0), 2: UNSTABLE}
    # A request for all topics returns materialised offsets: partition 2 is only pending.
    assert context.fetch("g", None, stable=True)["topic"] == {0: UNSTABLE, 1: (6, -1, "", 0)}
    assert context.fetch("g", None)["topic"] == {0: (5, 2, "note", 0), 1: (6, -1, "", 0)}
    context.assert_restart_changes_nothing()
    assert context.fetch("g", requested, stable=True)["topic"] == {0: UNSTABLE, 1: (6, -1, "", 0), 2: UNSTABLE}
    context.end_transaction(7, True)
    assert context.fetch("g", requested, stable=True)["topic"] == {i: (o, -1, "", 0) for i, o in enumerate((50, 6, 52))}


def test_v7_returns_unstable_too(context):
    context.commit_in_transaction("g", {"topic": {0: 50}})
    request = OffsetFetchRequest(group_id="g", topics=None, require_stable=True)
    response = context.call(context.api(OffsetFetchApi), request, version=7)
    found = {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
    assert found == {("topic", 0): 88, ("topic", 1): 0, ("other", 0): 0}


# ---- no dirty reads


@pytest.mark.parametrize("stable", [False, True])
def test_a_fetch_of_uncommitted_offsets_waits_for_their_commit(context, stable):
    context.auto_commit = False
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=100)
    topics = [OffsetCommitRequestTopic(name="topic", partitions=[partition])]
    commit = context.send(context.api(OffsetCommitApi), OffsetCommitRequest(group_id="g", topics=topics), version=9)
    requested = [OffsetFetchRequestTopics(name="topic", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=g, topics=requested) for g in ("g", "h")], require_stable=stable
    )
    fetch = context.send(context.api(OffsetFetchApi), request, version=9)
    old = context.send(context.api(OffsetFetchApi), OffsetFetchRequest(group_id="g", topics=None), version=2)
    assert [call.done for call in (commit, fetch, old)] == [False] * 3
    context.commit()
    assert commit.done
    assert fetch.response.groups[0].topics[0].partitions[0].committed_offset == 100
    assert fetch.response.groups[1].topics[0].partitions[0].committed_offset == -1
    assert old.response.topics[0].partitions[0].committed_offset == 100
