"""The responses of group APIs, in their oldest and newest versions, while the shard is loading or unloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.group.apis.consumer_group_describe import ConsumerGroupDescribeApi
from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.list_groups import ListGroupsApi
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_delete import OffsetDeleteApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.group.apis.streams_group_describe import StreamsGroupDescribeApi
from kcore.group.apis.streams_group_heartbeat import StreamsGroupHeartbeatApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages import consumer_group_describe as consumer_describe
from kcore.protocol.messages import consumer_group_heartbeat as consumer_heartbeat
from kcore.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from kcore.protocol.messages import offset_commit as commit
from kcore.protocol.messages import offset_delete as delete
from kcore.protocol.messages import offset_fetch as fetch
from kcore.protocol.messages import streams_group_describe as streams_describe
from kcore.protocol.messages import streams_group_heartbeat as streams_heartbeat
from kcore.protocol.messages import txn_offset_commit as txn_commit
from tests.group.offsets.world import OffsetsContext
from tests.group.streams.members import subtopology, topology

TOPIC_ID = b"a".rjust(16, b"-")
"""The id of the topic `a`, as `tests/group/context.py` derives it."""

TWO = ["g", "h"]

Case = tuple[type, int, Any, Callable[[E], Any]]
"""An API, a version, a request, and the response to the request for an error code."""


def _join(version: int, protocol_name: str | None) -> Case:
    request = join_group.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range")],
    )
    if version:
        request.rebalance_timeout_ms = 10_000
    response = join_group.JoinGroupResponse
    return JoinGroupApi, version, request, lambda c: response(error_code=c, protocol_name=protocol_name, member_id="m")


def _commit(version: int, **topic: Any) -> Case:
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = commit.OffsetCommitRequest(
        group_id="g", topics=[commit.OffsetCommitRequestTopic(**topic, partitions=[part])]
    )

    def response(code: E) -> Any:
        refused = commit.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return commit.OffsetCommitResponse(topics=(commit.OffsetCommitResponseTopic(**topic, partitions=(refused,)),))

    return OffsetCommitApi, version, request, response


def _txn_commit(version: int) -> Case:
    part = txn_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [txn_commit.TxnOffsetCommitRequestTopic(name="a", partitions=[part])]
    request = txn_commit.TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=7, topics=topics)

    def response(code: E) -> Any:
        if code is E.COORDINATOR_LOAD_IN_PROGRESS and version < 2:  # producers of these versions do not know the code
            code = E.COORDINATOR_NOT_AVAILABLE
        refused = txn_commit.TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
        return txn_commit.TxnOffsetCommitResponse(
            topics=(txn_commit.TxnOffsetCommitResponseTopic(name="a", partitions=(refused,)),)
        )

    return TxnOffsetCommitApi, version, request, response


def _first_fetch() -> Case:
    request = fetch.OffsetFetchRequest(
        group_id="g", topics=[fetch.OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
    )

    def response(code: E) -> Any:
        refused = fetch.OffsetFetchResponsePartition(partition_index=0, committed_offset=-1, error_code=code)
        return fetch.OffsetFetchResponse(topics=(fetch.OffsetFetchResponseTopic(name="a", partitions=(refused,)),))

    return OffsetFetchApi, 1, request, response


def _fetch(version: int, stable: bool) -> Case:
    groups = [fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in TWO]
    request = fetch.OffsetFetchRequest(groups=groups, require_stable=stable)
    refused = fetch.OffsetFetchResponseGroup

    def response(code: E) -> Any:
        return fetch.OffsetFetchResponse(groups=tuple(refused(group_id=group, error_code=code) for group in TWO))

    return OffsetFetchApi, version, request, response


def _describe(api: type, version: int, request: Any, module: Any, response: Any) -> Case:
    described = module.DescribedGroup
    return (
        api,
        version,
        request,
        lambda c: response(groups=tuple(described(group_id=group, error_code=c) for group in TWO)),
    )


def _delete_groups(version: int) -> Case:
    result = delete_groups.DeletableGroupResult

    def response(code: E) -> Any:
        results = tuple(result(group_id=group, error_code=code) for group in TWO)
        return delete_groups.DeleteGroupsResponse(results=results)

    return DeleteGroupsApi, version, delete_groups.DeleteGroupsRequest(groups_names=TWO), response


def _heartbeat(version: int) -> Case:
    """A heartbeat succeeds while the shard is loading, so that members need not rejoin."""
    request = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    succeeds = E.COORDINATOR_LOAD_IN_PROGRESS
    return (
        HeartbeatApi,
        version,
        request,
        lambda c: heartbeat.HeartbeatResponse(error_code=E.NONE if c is succeeds else c),
    )


def _list(version: int) -> Case:
    """A node lists the groups that it has. It cannot list any while a shard is loading."""
    omitted = E.NOT_COORDINATOR
    response = list_groups.ListGroupsResponse
    return (
        ListGroupsApi,
        version,
        list_groups.ListGroupsRequest(),
        lambda c: response(error_code=E.NONE if c is omitted else c),
    )


def _plain(api: type, version: int, request: Any, response: Any) -> Case:
    return api, version, request, lambda c: response(error_code=c)


CASES: list[Case] = [
    _join(0, ""),
    _join(9, None),
    _plain(SyncGroupApi, 0, sync_group.SyncGroupRequest(group_id="g"), sync_group.SyncGroupResponse),
    _plain(
        SyncGroupApi,
        5,
        sync_group.SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"),
        sync_group.SyncGroupResponse,
    ),
    _heartbeat(0),
    _heartbeat(4),
    _plain(
        LeaveGroupApi, 0, leave_group.LeaveGroupRequest(group_id="g", member_id="m"), leave_group.LeaveGroupResponse
    ),
    _plain(
        LeaveGroupApi,
        5,
        leave_group.LeaveGroupRequest(group_id="g", members=[leave_group.MemberIdentity(member_id="m")]),
        leave_group.LeaveGroupResponse,
    ),
    *(
        _describe(
            DescribeGroupsApi,
            version,
            describe_groups.DescribeGroupsRequest(groups=TWO),
            describe_groups,
            describe_groups.DescribeGroupsResponse,
        )
        for version in (0, 6)
    ),
    *(
        _describe(
            ConsumerGroupDescribeApi,
            version,
            consumer_describe.ConsumerGroupDescribeRequest(group_ids=TWO),
            consumer_describe,
            consumer_describe.ConsumerGroupDescribeResponse,
        )
        for version in (0, 1)
    ),
    _describe(
        StreamsGroupDescribeApi,
        0,
        streams_describe.StreamsGroupDescribeRequest(group_ids=TWO),
        streams_describe,
        streams_describe.StreamsGroupDescribeResponse,
    ),
    _list(0),
    _list(5),
    _delete_groups(0),
    _delete_groups(2),
    _commit(2, name="a"),
    _commit(10, topic_id=TOPIC_ID),
    _txn_commit(0),
    _txn_commit(5),
    _first_fetch(),
    _plain(OffsetFetchApi, 2, fetch.OffsetFetchRequest(group_id="g", topics=None), fetch.OffsetFetchResponse),
    _fetch(10, stable=False),
    _fetch(10, stable=True),
    _plain(
        OffsetDeleteApi,
        0,
        delete.OffsetDeleteRequest(
            group_id="g",
            topics=[
                delete.OffsetDeleteRequestTopic(
                    name="a", partitions=[delete.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        delete.OffsetDeleteResponse,
    ),
    *(
        _plain(
            ConsumerGroupHeartbeatApi,
            version,
            consumer_heartbeat.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                rebalance_timeout_ms=1_000,
                subscribed_topic_names=["a"],
                topic_partitions=[],
            ),
            consumer_heartbeat.ConsumerGroupHeartbeatResponse,
        )
        for version in (0, 1)
    ),
    _plain(
        StreamsGroupHeartbeatApi,
        0,
        streams_heartbeat.StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1_000,
            topology=topology(subtopology("0", ["a"])),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        ),
        streams_heartbeat.StreamsGroupHeartbeatResponse,
    ),
]


def made(world: OffsetsContext, kind: Any) -> Any:
    """Returns an API on the shards of the node."""
    if kind is JoinGroupApi:
        return kind(world.shards, world.config)
    if kind in (ConsumerGroupHeartbeatApi, ConsumerGroupDescribeApi):
        return kind(world.shards, world.consumer)
    if kind in (StreamsGroupHeartbeatApi, StreamsGroupDescribeApi):
        return kind(world.shards, world.streams)
    if kind in (OffsetCommitApi, OffsetDeleteApi, OffsetFetchApi, TxnOffsetCommitApi):
        return world.api(kind)
    return kind(world.shards)


@pytest.mark.parametrize(
    ("kind", "version", "request_", "response"), CASES, ids=[f"{case[0].__name__} v{case[1]}" for case in CASES]
)
@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS], ids=["unloaded", "loading"])
def test_an_unavailable_shard_refuses_every_request(
    kind: type, version: int, request_: Any, response: Callable[[E], Any], code: E, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = OffsetsContext(topics={"a": 1})
    world.unload()
    if code is E.COORDINATOR_LOAD_IN_PROGRESS:
        world.shards.load(0, world.engine.node_epoch)
        monkeypatch.setattr(world, "finish", lambda: None)  # the first slice of the load does not run
    found = world.call(made(world, kind), request_, version=version)
    assert found == response(code)
