"""The group shard: its groups, and the administrative requests about all groups."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.apis.find_coordinator import FindCoordinatorApi, share_key
from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.list_groups import ListGroupsApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.group import GroupType
from kcore.group.shard import REPLAY, TOPIC_NAME
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kcore.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from kcore.runtime import partition_for
from kcore.runtime.cluster import SingleNodeCluster
from tests.group.classic.world import COMPLETING, EMPTY, NOBODY, PREPARING, STABLE, World, join_refused
from tests.group.context import GroupContext, Topics
from tests.kit import serve

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Denying:
    """An authorizer that denies the given permissions."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = denied

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        return (operation, resource_type, resource_name) not in self.denied


# ---------------------------------------------------------------- the machine


def test_group_that_only_has_offsets_is_simple() -> None:
    """The group is created in memory with its first offset, without a record."""
    context = GroupContext()
    group = context.machine.get_or_create_group("g")
    assert context.machine.get_or_create_group("g") is group
    assert (group.group_type, group.protocol_type, group.state_name()) == (GroupType.CLASSIC, "", "Empty")
    assert group.is_empty()
    assert context.records() == []


def test_records_of_unknown_types_are_skipped() -> None:
    """A load skips records of unknown types and records without a key."""
    machine = GroupContext().machine
    assert machine.decode(None, b"x") is None
    assert machine.decode(b"\x7f\x00rest", b"x") is None
    key = GroupMetadataKey(group="g")
    assert machine.decode(key.encode_key(), None) == (key, None)
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    assert machine.decode(key.encode_key(), value.encode_value(3)) == (key, value)
    assert GroupMetadataKey in REPLAY


def test_join_that_completes_while_another_group_commits_gets_one_response() -> None:
    """The last missing member joins while the shard has uncommitted records of another group. The join is parked and
    completed at once, and each parked member gets one response after the commit.
    """
    world = World().build(PREPARING, pending=False)
    world.context.auto_commit = False
    other = world.join(group="other")
    calls = [world.join(world.static, instance="one"), world.join(world.leader)]
    assert world.state is COMPLETING
    assert not any(call.done for call in (other, *calls))
    world.context.commit()
    assert [call.response.error_code for call in (other, *calls, world.waiting)] == [79, 0, 0, 0]
    world.context.unload()  # completes all parked requests: there are none


def test_reads_of_uncommitted_records_wait_for_the_commit() -> None:
    """A response that depends on uncommitted records is sent only after their successful commit."""
    world = World().build(COMPLETING, pending=False)
    world.context.auto_commit = False
    world.sync(world.leader, {world.follower: b"F"})
    sync = world.sync(world.follower)
    describe = world.context.send(world.describe_api, DescribeGroupsRequest(groups=["g"]))
    listed = world.context.send(world.list_api, ListGroupsRequest())
    assert not any(call.done for call in (sync, describe, listed))
    world.context.commit()
    assert sync.response.assignment == b"F"
    assert describe.response.groups[0].group_state == "Stable"
    assert listed.response.groups == (_listed("g", "consumer", "Stable"),)


# ---------------------------------------------------------------- ListGroups


def _listed(group_id: str, protocol_type: str, state: str) -> ListedGroup:
    return ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type="classic")


@pytest.mark.parametrize(
    ("version", "filters", "expected"),
    [
        (0, {}, "full emptied simple"),
        (3, {}, "full emptied simple"),
        (4, {"states_filter": ["stable"]}, "full"),
        (4, {"states_filter": [" EMPTY ", "Stable"]}, "full emptied simple"),
        (4, {"states_filter": ["nonsense"]}, ""),
        (4, {"states_filter": ["Dead"]}, ""),
        (5, {"types_filter": ["CLASSIC"]}, "full emptied simple"),
        (5, {"types_filter": ["consumer"]}, ""),
        (5, {"types_filter": ["nonsense"]}, ""),
        (5, {"types_filter": ["share", "classic"], "states_filter": ["empty"]}, "emptied simple"),
    ],
)
def test_list_groups_returns_groups_that_match_both_filters(
    version: int, filters: dict[str, list[str]], expected: str
) -> None:
    """Both filters must match, in upper or lower case. Older versions do not return state and type."""
    world = World()
    world.context.machine.get_or_create_group("simple")
    for group in ("emptied", "full"):
        world.join(version=3, group=group)
        world.context.advance(0)
        (member_id,) = world.group(group).members
        world.sync(member_id, group=group)
        if group == "emptied":
            world.leave(member_id, group=group)
    rows = [
        _listed("simple", "", "Empty"),
        _listed("emptied", "consumer", "Empty"),
        _listed("full", "consumer", "Stable"),
    ]
    for row in rows:
        if version < 5:
            row.group_type = ""
        if version < 4:
            row.group_state = ""
    wanted = expected.split()
    assert world.list(version, **filters) == ListGroupsResponse(groups=[r for r in rows if r.group_id in wanted])


def test_list_groups_joins_several_shards() -> None:
    """The response has the groups of every shard, without groups that the client may not DESCRIBE."""
    context = GroupContext(partitions=3)
    names = [f"group-{i}" for i in range(9)]
    for name in names:
        context.shards.of(name).machine.get_or_create_group(name)
    listed = context.call(ListGroupsApi(context.shards), ListGroupsRequest())
    assert {group.group_id for group in listed.groups} == set(names)
    assert {partition_for(name, 3) for name in names} == {0, 1, 2}
    cluster = (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    hidden = Denying(cluster, (Operation.DESCRIBE, ResourceType.GROUP, "group-4"))
    listed = context.call(ListGroupsApi(context.shards, hidden), ListGroupsRequest())
    assert {group.group_id for group in listed.groups} == set(names) - {"group-4"}
    seen = Denying((Operation.DESCRIBE, ResourceType.GROUP, "group-4"))  # DESCRIBE on the cluster covers all groups
    listed = context.call(ListGroupsApi(context.shards, seen), ListGroupsRequest())
    assert {group.group_id for group in listed.groups} == set(names)


def test_describe_groups_of_several_shards_keeps_the_order() -> None:
    """The response keeps the order and the duplicates of the request. An error affects only its own group."""
    context = GroupContext(partitions=3)
    for name in ("a", "b", "c"):
        context.shards.of(name).machine.get_or_create_group(name)
    denied = Denying((Operation.DESCRIBE, ResourceType.GROUP, "b"))
    request = DescribeGroupsRequest(groups=["c", "b", "a", "absent", "c"])
    empty = {"group_state": "Empty", "error_code": 0}
    assert context.call(DescribeGroupsApi(context.shards, denied), request, version=5) == DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id="c", **empty),  # type: ignore[arg-type]
            DescribedGroup(group_id="b", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            DescribedGroup(group_id="a", **empty),  # type: ignore[arg-type]
            DescribedGroup(group_id="absent", group_state="Dead"),
            DescribedGroup(group_id="c", **empty),  # type: ignore[arg-type]
        ]
    )


def test_delete_groups_has_a_result_for_each_group() -> None:
    """The deletion of each group succeeds or fails independently. A duplicate gets one result."""
    world = World().build(STABLE)
    world.context.machine.get_or_create_group("simple")
    world.context.records()
    assert world.delete("g", "simple", "absent", "simple") == {"g": 68, "simple": 0, "absent": 69}
    assert world.context.records() == [(GroupMetadataKey(group="simple"), None)]


# ---------------------------------------------------------------- permissions


def test_members_need_read_on_their_group() -> None:
    """A client without READ on the group gets GROUP_AUTHORIZATION_FAILED before any other check. The only exception: a
    SyncGroup without a protocol name gets INCONSISTENT_GROUP_PROTOCOL first.
    """
    world = World().build(STABLE)
    denied = Denying((Operation.READ, ResourceType.GROUP, "g"), (Operation.DELETE, ResourceType.GROUP, "g"))
    shards = world.context.shards
    world.join_api = JoinGroupApi(shards, world.context.config, denied)
    world.sync_api = SyncGroupApi(shards, denied)
    world.heartbeat_api = HeartbeatApi(shards, denied)
    world.leave_api = LeaveGroupApi(shards, denied)
    world.delete_api = DeleteGroupsApi(shards, denied)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.join(NOBODY, session_ms=0).response == join_refused(code, "")
    assert world.sync(world.follower).response.error_code == code
    assert world.sync(world.follower, protocol_name=None).response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.beat(world.follower) == code
    assert world.leave(world.follower).error_code == code
    assert world.delete("g") == {"g": code}


# ---------------------------------------------------------------- FindCoordinator


def _find(api: FindCoordinatorApi, version: int, **fields: Any) -> FindCoordinatorResponse:
    response = GroupContext().call(api, FindCoordinatorRequest(**fields), version=version)
    assert isinstance(response, FindCoordinatorResponse)
    return response


def _api(topics: dict[str, int] | None = None, **options: Any) -> FindCoordinatorApi:
    cluster = SingleNodeCluster(7, "cluster")
    cluster.advertise("PLAINTEXT", "host", 9092)
    names = (TOPIC_NAME, "__transaction_state", "__share_group_state")
    return FindCoordinatorApi(Topics(dict.fromkeys(names, 50) if topics is None else topics), cluster, **options)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_find_coordinator_up_to_v3_has_one_result(version: int) -> None:
    """Up to v3 the request has one key. From v1 on, the error message of a success is the text NONE."""
    assert _find(_api(), version, key="g") == FindCoordinatorResponse(
        node_id=7, host="host", port=9092, error_message="NONE" if version else ""
    )


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("key_type", [0, 1])
def test_find_coordinator_since_v4_has_a_result_for_each_key(version: int, key_type: int) -> None:
    """From v4 on, each key has a result with its name, in request order, with duplicates."""
    found = _find(_api(), version, key_type=key_type, coordinator_keys=["b", "", "a", "b"])
    assert found == FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=7, host="host", port=9092) for key in ("b", "", "a", "b")]
    )
    assert _find(_api(), version, coordinator_keys=[]) == FindCoordinatorResponse()


@pytest.mark.parametrize(
    ("version", "key_type", "text"),
    [(1, 2, True), (3, 3, True), (3, -1, True), (4, 3, True), (6, -1, True), (4, 2, False), (5, 2, False)],
)
def test_find_coordinator_refuses_key_types(version: int, key_type: int, text: bool) -> None:
    """Each key gets INVALID_REQUEST. From v4 on, a refused share key has no message."""
    code = ErrorCode.INVALID_REQUEST
    key = f"g:{TOPIC_ID}:0"
    if version < 4:
        expected = FindCoordinatorResponse(error_code=code, error_message=code.message, node_id=-1, host="", port=-1)
    else:
        expected = FindCoordinatorResponse(coordinators=[_refused(key, code, code.message if text else "")])
    requested = {"key": key} if version < 4 else {"coordinator_keys": [key]}
    assert _find(_api(), version, key_type=key_type, **requested) == expected


def test_find_coordinator_creates_the_internal_topic() -> None:
    """If the internal topic is missing, FindCoordinator creates it and returns COORDINATOR_NOT_AVAILABLE, so that the
    client retries. The client gets the same error if the coordinator has no address for the client's listener.
    """
    made: list[str] = []
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = _find(_api({}, make_topic=made.append), 4, coordinator_keys=["g"])
    assert found == FindCoordinatorResponse(coordinators=[_refused("g", code, code.message)])
    assert made == [TOPIC_NAME]
    unreachable = FindCoordinatorApi(Topics({TOPIC_NAME: 50}), SingleNodeCluster(7, "cluster"))
    assert _find(unreachable, 4, coordinator_keys=["g"]) == found


def test_find_coordinator_authorizes_each_key() -> None:
    """A group or transactional id needs DESCRIBE; a share partition needs CLUSTER_ACTION."""
    denied = Denying(
        (Operation.DESCRIBE, ResourceType.GROUP, "g"),
        (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "t"),
        (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"),
    )
    share = f"g:{TOPIC_ID}:0"
    for key_type, key, code in ((0, "g", 30), (1, "t", 53), (2, share, 31), (0, "t", 0), (1, "g", 0)):
        (found,) = _find(_api(authorizer=denied), 6, key_type=key_type, coordinator_keys=[key]).coordinators
        assert (found.key, found.error_code) == (key, code)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (f"g:{TOPIC_ID}:0", f"g:{TOPIC_ID}:0"),
        (f"g:h:{TOPIC_ID}:0", f"g:h:{TOPIC_ID}:0"),
        (f"g:{TOPIC_ID}==:+07", f"g:{TOPIC_ID}:7"),
        (f"g:{TOPIC_ID}:-1", f"g:{TOPIC_ID}:-1"),
        (f"g:{TOPIC_ID}:2147483647", f"g:{TOPIC_ID}:2147483647"),
        (f"g:{TOPIC_ID}:2147483648", None),
        (f"g:{TOPIC_ID}:x", None),
        (f"g:{TOPIC_ID}: 1", None),
        (f"g:{TOPIC_ID}:", None),
        (f"g:{TOPIC_ID}", None),
        (f":{TOPIC_ID}:0", None),
        (f" :{TOPIC_ID}:0", None),
        ("g:no-uuid:0", None),
        ("", None),
    ],
)
def test_a_share_key_has_a_group_a_topic_id_and_a_partition(text: str, canonical: str | None) -> None:
    """The key of a share coordinator has the format group:topic id:partition. `share_key` returns the key in canonical
    form, or None for an invalid key.
    """
    assert share_key(text) == canonical


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("", 0),
        ("a", 47),
        ("foo", 24),
        ("group-1", 49),
        ("my-group", 12),
        ("组", 2),
        ("😀", 49),
        ("polygenelubricants", 0),
    ],
)
def test_a_coordinators_partition_is_javas_hash(key: str, partition: int) -> None:
    """The partition of a key is the absolute value of Java's hash of its UTF-16 units, modulo the number of
    partitions.
    """
    requested: list[int] = []

    class Cluster(SingleNodeCluster):
        def leader(self, topic: str, partition: int) -> Any:
            requested.append(partition)
            return super().leader(topic, partition)

    api = FindCoordinatorApi(Topics({TOPIC_NAME: 50}), Cluster(1, "cluster"))
    _find(api, 4, coordinator_keys=[key])
    assert requested == [partition]


# ---------------------------------------------------------------- heartbeats and other APIs


def test_heartbeat_responses_are_shared() -> None:
    """A heartbeat allocates no response: it returns the response object that the group stores."""
    world = World().build(STABLE)
    from kcore.runtime import RequestContext

    api = HeartbeatApi(world.context.shards)
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id=world.leader)
    first, second = (serve(api, RequestContext(4), request) for _ in range(2))
    assert first is second
    assert first == HeartbeatResponse()
    world.join(world.leader)
    assert serve(api, RequestContext(4), request) == HeartbeatResponse(error_code=27)


def test_other_kinds_of_groups_refuse_classic_requests() -> None:
    """Joins of a group of another type get INCONSISTENT_GROUP_PROTOCOL, requests of members UNKNOWN_MEMBER_ID.
    DescribeGroups does not find the group.
    """
    world = World().build(EMPTY)
    machine = world.context.machine
    share: Any = object.__new__(_ShareGroup)
    share.group_id, share.protocol_type = "g", "share"
    machine.groups["g"] = share
    assert world.join().response == join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert world.join(NOBODY).response == join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert world.sync(NOBODY, generation=1).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(NOBODY, generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    (left,) = world.leave(NOBODY).members
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


class _ShareGroup:
    members: dict[str, object] = {}  # noqa: RUF012  # never changed
    group_type = GroupType.SHARE

    def state_name(self) -> str:
        return "Stable"
