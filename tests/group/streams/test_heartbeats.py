"""StreamsGroupHeartbeat beyond the recorded scenarios: statuses, epochs, timers, conversions, recovery, fast path."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.assignors.streams_sticky import StreamsAssignment
from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.group.apis import JoinGroupApi, ListGroupsApi, OffsetCommitApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.streams.configure import Status
from kcore.group.streams.records import group_records
from kcore.group.streams.services import check_broker_settings
from kcore.group.streams.timers import InitialDelay
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatResponse,
)
from kcore.protocol.messages.streams_group_heartbeat import Status as ResponseStatus
from kcore.protocol.records.streams_group_metadata import StreamsGroupMetadataKey
from kcore.protocol.records.streams_group_topology import StreamsGroupTopologyKey, StreamsGroupTopologyValue
from tests.group.streams.members import GROUP, Member, World, internal, owned_tasks, subtopology, task_list, topology

STATELESS = topology(subtopology("0", ["in"]))
STATEFUL = topology(subtopology("0", ["in"], [internal("log")]))


def statuses(response: StreamsGroupHeartbeatResponse) -> list[Status]:
    return [Status(status.status_code) for status in response.status or ()]


def joined(world: World, *names: str, requested: Any = STATELESS) -> list[Member]:
    members = [Member(world, name) for name in names]
    for member in members:
        member.join(requested)
    return members


def test_a_whole_group_consists_of_values_of_records() -> None:
    """Each value in the records of a whole group is an object of a record class, because Spark reads its fields."""
    world = World({"in": 3, "log": 3})
    joined(world, "m1", requested=STATEFUL)
    values = [record.value for record in group_records(world.group)]
    assert {type(value).__module__.rpartition(".")[0] for value in values} == {"kcore.protocol.records"}
    assert StreamsGroupTopologyValue in map(type, values)


# ---- internal topics


def test_internal_topics_are_requested_until_they_exist() -> None:
    """Each heartbeat requests the missing topics. Once they exist, the epoch rises and the tasks are assigned."""
    world = World({"in": 3})
    (member,) = joined(world, "m1", requested=STATEFUL)
    assert statuses(member.beat()) == [Status.MISSING_INTERNAL_TOPICS]
    assert world.internal.requested.keys() == {"log"}
    assert world.internal.requested["log"].partitions == 3
    assert world.internal.remembered_ms == 10_000
    assert (world.group.state_name(), world.group.group_epoch) == ("NotReady", 2)
    assert world.create_internal() == ["log"]
    assert statuses(member.beat()) == []
    assert (member.epoch, member.active) == (3, {"0": [0, 1, 2]})
    assert world.group.state_name() == "Stable"


def test_failures_of_the_creation_are_reported() -> None:
    """The status names at most three topics that could not be created, with the reason."""
    world = World({"in": 1})
    logs = [internal(f"log{i}") for i in range(5)]
    world.internal.failed = {f"log{i}": "no space" for i in range(5)}
    member = Member(world, "m1")
    response = member.join(topology(subtopology("0", ["in"], logs)))
    (status,) = response.status or ()
    assert status.status_detail == (
        "the internal topics log0, log1, log2 and 2 more are missing; "
        "their creation failed: log0 (no space), log1 (no space), log2 (no space)"
    )


def test_wrong_partition_counts_are_reported_until_they_are_right() -> None:
    """The status names the existing topic and both counts."""
    world = World({"in": 2, "log": 3})
    member = Member(world, "m1")
    (status,) = member.join(STATEFUL).status or ()
    assert status == ResponseStatus(
        status_code=Status.INCORRECTLY_PARTITIONED_TOPICS.value,
        status_detail="the existing topic log has 3 partitions, but 2 are needed",
    )
    assert (member.active, world.group.state_name()) == ({}, "NotReady")
    world.make_topic("in", 3)
    assert statuses(member.beat()) == []
    assert (member.active, world.group.state_name()) == ({"0": [0, 1, 2]}, "Stable")


def test_a_stale_topology_is_reported_to_its_member_alone() -> None:
    """A member with an older topology epoch than the group gets tasks. Until it joins with the group's topology, the
    responses to its heartbeats contain the status STALE_TOPOLOGY.
    """
    world = World({"in": 2})
    new, old = Member(world, "m1"), Member(world, "m2")
    new.join(topology(subtopology("0", ["in"]), epoch=1))
    (status,) = old.join(STATELESS).status or ()
    assert status == ResponseStatus(
        status_code=Status.STALE_TOPOLOGY.value, status_detail="the member's topology epoch 0 is behind the group's 1"
    )
    world.settle(new, old)
    assert (new.active, old.active) == ({"0": [0]}, {"0": [1]})
    assert (statuses(new.beat()), statuses(old.beat())) == ([], [Status.STALE_TOPOLOGY])
    assert statuses(old.join(topology(subtopology("0", ["in"]), epoch=1))) == []


def test_another_topology_is_refused() -> None:
    """The error message says what the operator must do."""
    world = World({"in": 1, "other": 1})
    joined(world, "m1")
    for epoch in (0, 1):
        requested = topology(subtopology("0", ["other"]), epoch=epoch)
        refused = world.beat(member_id="m2", **Member(world, "m2").join_fields(requested))
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            f"the topology differs from that of group {GROUP}, which cannot change: delete the group first",
        )


def test_long_names_do_not_make_a_status_too_long_to_encode() -> None:
    """A text has at most 32,767 bytes on the wire. The names of three topics may be longer."""
    world = World({"in": 1})
    member = Member(world, "m1")
    sources = [letter * 30_000 for letter in "abc"]
    response = member.join(topology(subtopology("0", sources)))
    (status,) = response.status or ()
    assert status.status_code == Status.MISSING_SOURCE_TOPICS.value
    assert status.status_detail == f"the source topics {'a' * 3_982}..."
    assert StreamsGroupHeartbeatResponse.decode(response.encode(0), 0) == response
    world.internal.failed = {"log": "x" * 40_000}
    response = Member(world, "m2").join(topology(subtopology("0", sources)))
    assert StreamsGroupHeartbeatResponse.decode(response.encode(0), 0) == response


def test_the_deletion_of_a_source_topic_revokes_its_tasks() -> None:
    """A group whose source topic disappears gets empty targets until the topic exists again."""
    world = World({"in": 2})
    (member,) = joined(world, "m1")
    world.drop_topic("in")
    assert statuses(member.ack()) == [Status.MISSING_SOURCE_TOPICS]
    member.ack()
    assert (member.active, world.group.state_name()) == ({}, "NotReady")
    world.make_topic("in", 1)
    world.settle(member)
    assert member.active == {"0": [0]}


def test_a_grown_source_topic_adds_tasks() -> None:
    world = World({"in": 1})
    (member,) = joined(world, "m1")
    world.make_topic("in", 3)
    member.beat()
    assert (member.active, member.epoch) == ({"0": [0, 1, 2]}, 3)


def test_a_refused_heartbeat_does_not_hide_a_changed_topic() -> None:
    """A topic grows, and the next heartbeat is refused because it reports an unknown task. The heartbeat after it still
    assigns the new tasks.
    """
    world = World({"in": 1})
    (member,) = joined(world, "m1")
    world.make_topic("in", 3)
    refused = member.send(active_tasks=task_list({"9": [0]}), standby_tasks=[], warmup_tasks=[])
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    member.beat()
    assert (member.active, member.epoch) == ({"0": [0, 1, 2]}, 3)


# ---- epochs and settings


def test_a_change_of_the_standby_setting_raises_the_epoch() -> None:
    """The next heartbeat of any member assigns standby tasks, even if the fast path served the previous heartbeat."""
    world = World({"in": 2, "log": 2})
    one, two = joined(world, "m1", "m2", requested=STATEFUL)
    world.settle(one, two)
    one.beat()
    world.set_group(GROUP, streams_num_standby_replicas=1)
    one.beat()
    world.settle(one, two)
    assert sorted([*one.active["0"], *two.active["0"]]) == [0, 1]
    assert (one.standby, two.standby) == (two.active, one.active)
    assert world.group.assignment_configs == (("num.standby.replicas", "1"),)


def test_changed_metadata_raises_the_epoch_and_equal_metadata_does_not() -> None:
    """A changed client id raises the epoch. Equal metadata, with the tags in any order, leaves the epoch unchanged."""
    world = World({"in": 1})
    tags = [KeyValue(key="b", value="2"), KeyValue(key="a", value="1")]
    member = Member(world, "m1")
    member.join(STATELESS, client_tags=tags)
    member.beat(client_tags=tags[::-1], process_id=member.process)
    assert world.group.group_epoch == 2
    member.beat(client_id="other")
    assert (world.group.group_epoch, member.epoch) == (3, 3)
    duplicate = member.beat(client_tags=[tags[0], tags[0]])
    assert duplicate.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_contradictory_settings_are_refused() -> None:
    for settings, text in (
        ({"group.streams.session.timeout.ms": "1"}, "must be within"),
        ({"group.streams.num.standby.replicas": "3"}, "must be at most"),
    ):
        with pytest.raises(ConfigError, match=text):
            check_broker_settings(Config.of(settings))


def test_a_full_group_refuses_every_join() -> None:
    """As in Kafka 4.3, a full group refuses even a member that rejoins."""
    world = World({"in": 1}, group_streams_max_size=1)
    (member,) = joined(world, "m1")
    for name in ("m1", "m2"):
        refused = Member(world, name).send(**member.join_fields(STATELESS))
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member.beat().error_code == ErrorCode.NONE


def test_reported_tasks_must_exist() -> None:
    world = World({"in": 2})
    (member,) = joined(world, "m1")
    for owned in ({"1": [0]}, {"0": [2]}, {"0": [-1]}):
        response = member.send(active_tasks=task_list(owned), standby_tasks=[], warmup_tasks=[])
        assert response.error_code == ErrorCode.INVALID_REQUEST
    assert member.ack().error_code == ErrorCode.NONE


class AllToTheFirst:
    """A custom assignor that assigns every task to the member with the lowest id, or returns an invalid result."""

    name = "all-to-the-first"

    def __init__(self) -> None:
        self.fault = ""

    def assign(self, members: Any, subtopologies: Any, *, num_standby_replicas: int = 0) -> StreamsAssignment:
        ids = sorted(member.member_id for member in members)
        tasks = {name: list(range(part.partitions)) for name, part in subtopologies.items()}
        active = {ids[0]: tasks}
        if self.fault == "unknown":
            active = {ids[0]: {"0": [0, 1, 2]}}
        elif self.fault == "two members":
            active = dict.fromkeys(ids, tasks)
        elif self.fault == "none":
            active = {}
        standby = {ids[0]: tasks} if self.fault == "one process" else {}
        return StreamsAssignment(active, standby, {})  # type: ignore[arg-type]  # mappings are enough


def test_an_invalid_result_of_a_custom_assignor_is_refused() -> None:
    """After an invalid result the group keeps its target, and the next heartbeat retries."""
    world = World({"in": 2}, kcore_streams_assignor="tests.group.streams.test_heartbeats:AllToTheFirst")
    one, two = joined(world, "m1", "m2")
    world.settle(one, two)
    assert (one.active, two.active) == ({"0": [0, 1]}, {})
    assignor: Any = world.streams.assignor
    for fault in ("unknown", "two members", "none", "one process"):
        assignor.fault = fault
        assert two.beat(rack_id=fault).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (world.group.group_epoch, world.group.state_name()) == (3, "Stable")
    assignor.fault = ""
    assert two.beat(rack_id="r").error_code == ErrorCode.NONE
    world.settle(one, two)
    assert (one.active, world.group.group_epoch) == ({"0": [0, 1]}, 4)


# ---- timers


def test_members_that_join_in_the_initial_delay_get_tasks_together() -> None:
    """A join during the delay does not extend it."""
    world = World({"in": 2}, group_streams_initial_rebalance_delay_ms=3_000)
    one = Member(world, "m1")
    assert statuses(one.join(STATELESS)) == [Status.ASSIGNMENT_DELAYED]
    assert one.epoch == 1
    world.advance(2_000)
    two = Member(world, "m2")
    two.join(STATELESS)
    assert statuses(one.beat()) == [Status.ASSIGNMENT_DELAYED]
    world.records()
    world.advance(1_000)
    assert [type(key).__name__ for key, _ in world.records()] == [
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupTargetAssignmentMetadataKey",
    ]
    assert statuses(one.beat()) == statuses(two.beat()) == []
    assert (one.active, two.active, one.epoch, two.epoch) == ({"0": [0]}, {"0": [1]}, 3, 3)


def test_a_deleted_group_has_no_initial_delay() -> None:
    world = World({"in": 1}, group_streams_initial_rebalance_delay_ms=3_000)
    (member,) = joined(world, "m1")
    member.leave()
    world.shard.perform(lambda: _outcome(world))
    world.finish()
    assert GROUP not in world.machine.groups
    assert world.machine.initial_delays == {}
    world.records()
    world.advance(10_000)
    assert world.records() == []


def test_an_initial_delay_whose_timer_was_never_armed_can_be_cancelled() -> None:
    """The initial delay of a group has no timer if arming the timer failed for lack of memory. When the shard is
    unloaded, it can cancel the delay without an error.
    """
    world = World({"in": 1})
    delay = world.machine.initial_delays[GROUP] = InitialDelay(world.machine, GROUP)
    delay.cancel()
    assert world.machine.initial_delays == {}


def _outcome(world: World) -> Any:
    from kcore.runtime.machine import Outcome

    return Outcome(world.group.tombstones())


def test_silent_members_and_members_that_do_not_revoke_are_removed() -> None:
    """A silent member is removed after its session timeout. A member that does not revoke is removed after its
    rebalance timeout.
    """
    world = World({"in": 2})
    one, two = joined(world, "m1", "m2")
    for _ in range(10):
        one.beat()
        two.beat()
        world.advance(1_000)
    assert list(world.group.members) == ["m2"]
    world.settle(two)
    world.advance(45_000)
    assert (world.group.members, world.group.state_name()) == ({}, "Empty")


def test_timers_run_again_after_a_restart() -> None:
    """Sessions and revocation timeouts start again in full. The initial delay is not repeated."""
    world = World({"in": 2}, group_streams_initial_rebalance_delay_ms=3_000)
    joined(world, "m1")
    world.restart()
    world.advance(44_999)
    assert list(world.group.members) == ["m1"]
    world.advance(1)
    assert world.group.members == {}


def test_a_target_that_exceeds_one_decision_is_written_in_slices() -> None:
    """The targets of many members are written in several slices. The record with the assignment epoch comes last."""
    world = World({"in": 12}, group_streams_initial_rebalance_delay_ms=3_000)
    members = joined(world, *(f"m{i}" for i in range(12)))
    members[0].beat()
    world.machine.max_record_bytes = 1_000
    world.records()
    world.advance(3_000)
    keys = [type(key).__name__ for key, _ in world.records()]
    assert keys == 12 * ["StreamsGroupTargetAssignmentMemberKey"] + ["StreamsGroupTargetAssignmentMetadataKey"]
    world.settle(*members)
    assert sorted(number for member in members for number in member.active["0"]) == list(range(12))


def test_a_target_with_a_refused_slice_does_not_apply() -> None:
    """A member's target is too large for the log, so the assignment epoch stays unchanged. With a new epoch, the tasks
    of this target would be lost without an error.
    """
    world = World({"in": 200}, group_streams_initial_rebalance_delay_ms=3_000)
    members = joined(world, *(f"m{i}" for i in range(4)))
    members[0].beat()
    world.machine.max_record_bytes = 600
    world.shards.of(GROUP)._max_batch_bytes = 200
    world.advance(3_000)
    assert (world.group.assignment_epoch, world.group.targets) == (1, {})


# ---- other kinds of groups


def test_an_empty_classic_group_is_replaced() -> None:
    """A streams heartbeat replaces a classic group that has only offsets, and the offsets are kept. If the classic
    group has members, the heartbeat is refused.
    """
    world = World({"in": 1})
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [OffsetCommitRequestTopic(name="in", partitions=[partition])]
    world.call(
        OffsetCommitApi(world.shards, world.topics), OffsetCommitRequest(group_id=GROUP, topics=topics), version=9
    )
    assert isinstance(world.machine.groups[GROUP], ClassicGroup)
    (member,) = joined(world, "m1")
    assert world.describe().group_state == "Stable"
    assert world.machine.offsets.count(GROUP) == 1
    before = world.describe()
    world.restart()
    assert (world.describe(), world.machine.offsets.count(GROUP)) == (before, 1)
    member.leave()
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[protocol]
    )
    world.records()
    world.send(JoinGroupApi(world.shards, world.config), request, version=3)
    assert isinstance(world.machine.groups[GROUP], ClassicGroup)
    keys = [type(key).__name__ for key, value in world.records() if value is None]
    assert keys == ["StreamsGroupTargetAssignmentMetadataKey", "StreamsGroupMetadataKey", "StreamsGroupTopologyKey"]
    assert world.machine.on_topic_changed("in") is None
    refused = Member(world, "m2").send(**member.join_fields(STATELESS))
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == f"Group {GROUP} is a classic group, not a streams group."


def test_list_groups_filters_by_not_ready_with_an_underscore() -> None:
    world = World({})
    joined(world, "m1")

    def listed(state: str) -> list[ListedGroup]:
        request = ListGroupsRequest(states_filter=[state], types_filter=["streams"])
        return list(world.call(ListGroupsApi(world.shards), request).groups)

    entry = ListedGroup(group_id=GROUP, protocol_type="streams", group_state="NotReady", group_type="streams")
    assert (listed("Not_Ready"), listed("NotReady")) == ([entry], [])


def test_offsets_of_older_epochs_need_the_task() -> None:
    """A member may commit with an older epoch only for partitions of tasks that it has owned since that epoch."""
    world = World({"in": 2, "other": 1})
    one, two = joined(world, "m1", "m2")
    world.settle(one, two)
    one.beat(rack_id="r")
    two.beat()
    one.ack()
    assert one.epoch == 4

    def commit(epoch: int, *partitions: tuple[str, int]) -> set[int]:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=5)],
            )
            for name, index in partitions
        ]
        request = OffsetCommitRequest(
            group_id=GROUP, member_id="m1", generation_id_or_member_epoch=epoch, topics=topics
        )
        response = world.call(OffsetCommitApi(world.shards, world.topics), request, version=9)
        return {partition.error_code for topic in response.topics for partition in topic.partitions}

    stale = {ErrorCode.STALE_MEMBER_EPOCH}
    assert one.active == {"0": [0]}
    assert commit(4, ("in", 1), ("other", 0)) == {0}
    assert commit(2, ("in", 0)) == {0}
    assert commit(1, ("in", 0)) == commit(2, ("in", 1)) == commit(2, ("other", 0)) == stale
    assert commit(5, ("in", 0)) == stale


# ---- endpoints and shutdown


def test_a_shutdown_request_lasts_until_the_last_member_leaves() -> None:
    """The request is soft state, so a restart also ends it."""
    world = World({"in": 1})
    one, two = joined(world, "m1", "m2")
    assert statuses(one.beat(shutdown_application=True)) == [Status.SHUTDOWN_APPLICATION]
    assert statuses(two.beat()) == [Status.SHUTDOWN_APPLICATION]
    world.restart()
    assert statuses(two.beat()) == []
    one.leave(shutdown_application=True)
    assert statuses(two.beat()) == [Status.SHUTDOWN_APPLICATION]
    two.leave()
    assert statuses(two.join(STATELESS)) == []


# ---- recovery


def test_a_restart_does_not_change_the_group() -> None:
    """After a restart, heartbeats write no record, and the group has the same epoch. A new epoch would cause a needless
    rebalance.
    """
    world = World({"in": 2, "log": 2}, group_streams_num_standby_replicas=1)
    one, two = joined(world, "m1", "m2", requested=STATEFUL)
    world.settle(one, two)
    before = world.describe()
    world.restart()
    world.records()
    one.beat()
    two.beat()
    assert world.describe() == before
    assert world.records() == []


def test_the_tombstone_of_a_topology_after_its_group_is_ignored() -> None:
    """The log has the tombstone of the group before the tombstone of its topology, whose replay then changes nothing.

    After the group's own tombstone, changes of its topics no longer notify the group.
    """
    world = World({"in": 1})
    (member,) = joined(world, "m1")
    member.leave()
    world.machine.replay(0, -1, StreamsGroupMetadataKey(group_id="none"), None)
    world.machine.replay(0, -1, StreamsGroupTopologyKey(group_id="none"), None)
    world.shard.perform(lambda: _outcome(world))
    world.finish()
    assert GROUP not in world.machine.groups
    world.make_topic("in", 5)
    (again,) = joined(world, "m2")
    assert again.active == {"0": [0, 1, 2, 3, 4]}
    assert again.epoch == 2


# ---- the fast path


def run(use_fast_path: bool) -> tuple[list[Any], list[tuple[str, str]], int]:
    """Runs many kinds of heartbeats. Returns the responses, the records, and the number of heartbeats that the fast
    path served.
    """
    world = World({"in": 2, "log": 2})
    world.use_fast_path = use_fast_path
    api = world.heartbeats
    world.api = api
    responses = []
    one, two = Member(world, "m1"), Member(world, "m2")
    responses += [one.join(STATEFUL), one.ack(), one.beat(), one.beat(), two.join(STATEFUL)]
    for _ in range(4):
        responses += [one.ack(), two.ack()]
    responses += [one.beat(), two.beat(), one.beat(), two.beat(), one.beat(endpoint_information_epoch=3), one.beat()]
    world.set_group(GROUP, streams_heartbeat_interval_ms=7_000)
    responses += [one.beat(), one.beat()]
    world.set_group(GROUP, streams_num_standby_replicas=1)
    for _ in range(4):
        responses += [one.beat(), two.ack(), one.ack(), two.beat()]
    world.drop_topic("in")
    responses += [one.beat(), one.beat()]
    world.make_topic("in", 2)
    for _ in range(6):
        responses += [one.ack(), two.ack()]
    responses += [one.beat(), two.beat(), one.beat(), one.beat(client_id="x"), two.beat(), one.beat()]
    responses += [one.beat(member_epoch=1), one.beat(member_id="m3"), one.beat(group_id="none"), one.beat(group_id="")]
    responses += [two.beat(rack_id="r"), two.beat(shutdown_application=True), one.beat(), two.beat(instance_id="i")]
    world.restart()
    world.api = None
    responses += [one.beat(), two.beat()]
    return responses, [(str(key), str(value)) for key, value in world.records()], api.fast_path.served


def test_both_paths_give_the_same_responses_and_records() -> None:
    """The fast path serves heartbeats that change nothing, and no others."""
    fast, generic = run(True), run(False)
    assert fast[0] == generic[0]
    assert fast[1] == generic[1]
    assert (fast[2], generic[2]) == (17, 0)


def test_a_member_that_waited_gets_a_released_task_after_a_heartbeat_of_another_member() -> None:
    """A member waits for a task of another member. The other member's heartbeat releases the task, so that the waiting
    member gets the task instead of its cached response.
    """
    world = World({"in": 2})
    world.api = world.heartbeats
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(STATELESS)
    two.join(STATELESS)
    for _ in range(2):
        assert two.beat().active_tasks is None, "m1 still owns the task"
    assert owned_tasks(one.join(STATELESS).active_tasks) == {"0": [0]}, (
        "a member that joins again has released its tasks"
    )
    one.beat()
    assert owned_tasks(two.beat().active_tasks) == {"0": [1]}
    assert world.group.state_name() == "Stable"


def test_the_fast_path_extends_the_session() -> None:
    world = World({"in": 1})
    (member,) = joined(world, "m1")
    member.beat()
    for _ in range(20):
        world.advance(44_000)
        assert member.beat().error_code == ErrorCode.NONE
    assert world.heartbeats.fast_path.served == 0  # a new API each time
    world.advance(45_000)
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
