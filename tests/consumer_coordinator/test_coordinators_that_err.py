"""Members and coordinators that respond late or wrongly, or repeat the same refusal, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.assignors import get
from kcore.client.consumer_coordinator.base import GroupMemberMachine
from kcore.client.consumer_coordinator.classic import ClassicMember
from kcore.client.consumer_coordinator.consumer import EMPTY_PAUSE_MS, ConsumerMember
from kcore.client.consumer_coordinator.interface import Assigned, Generation, Lost, MemberSettings, Outgoing, Revoked
from kcore.client.consumer_coordinator.states import ClassicState, ConsumerState
from kcore.errors import ConnectionClosedError, MalformedResponseError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kcore.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kcore.protocol.topic_partition import TopicPartition

TOPIC_ID = b"0123456789abcdef"
INTERVAL_MS = 5_000
T = [TopicPartition("t", number) for number in range(4)]
SETTINGS = {"group_id": "g", "topics": ("t",), "rebalance_timeout_ms": 60_000}


def beat(
    epoch: int, *partitions: int, error: int = 0, interval_ms: int = INTERVAL_MS
) -> ConsumerGroupHeartbeatResponse:
    """Returns a heartbeat response. Without `partitions` the response has no assignment."""
    rows = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))]
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=Assignment(topic_partitions=rows) if partitions else None,
    )


class Driver:
    """Advances a machine in virtual time. Lookups get their responses at once; other requests wait for the test."""

    def __init__(self, machine: GroupMemberMachine) -> None:
        self.machine: Any = machine
        self.now_ms = 0
        self.sent: list[Outgoing] = []

    def step(self, ms: int = 0, *, polls: bool = True) -> None:
        """Lets time pass, and advances the machine until it has nothing to do."""
        self.now_ms += ms
        if polls:
            self.machine.poll(self.now_ms)
        for _ in range(10):
            self.machine.advance(self.now_ms)
            outgoing = self.machine.take_requests()
            for each in outgoing:
                if isinstance(each.request, FindCoordinatorRequest):
                    row = Coordinator(key="g", node_id=1, host="broker", port=1)
                    self.respond(each, FindCoordinatorResponse(coordinators=[row]))
                elif isinstance(each.request, MetadataRequest):
                    partitions = [MetadataResponsePartition(partition_index=number) for number in range(4)]
                    topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)
                    self.respond(each, MetadataResponse(topics=[topic]))
                else:
                    self.sent.append(each)
            wake_ms = self.machine.wake_ms()
            if not outgoing and (wake_ms is None or wake_ms > self.now_ms):
                return
        raise AssertionError(f"the machine does not rest: {self.machine.state}")

    def respond(self, outgoing: Outgoing, response: Any) -> None:
        self.machine.received(outgoing, response, self.now_ms)

    def take(self, kind: type[Any]) -> Outgoing:
        """Returns the only request of a kind that waits for a response, and removes it."""
        (found,) = [each for each in self.sent if isinstance(each.request, kind)]
        self.sent.remove(found)
        return found

    def beats(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Responds to the outstanding heartbeat."""
        self.respond(self.take(ConsumerGroupHeartbeatRequest), response)
        self.step()

    def handle(self, event: type[Any], error: BaseException | None = None) -> Any:
        """Reports the machine's event as handled."""
        found = self.machine.event
        assert isinstance(found, event)
        self.machine.event_done(error, self.now_ms)
        self.step()
        return found


def consumer(consumed: Callable[[], Any] = dict, **settings: Any) -> Driver:
    return Driver(ConsumerMember(MemberSettings(**{**SETTINGS, **settings}), 0, consumed=consumed))


def classic(**settings: Any) -> Driver:
    return Driver(ClassicMember(MemberSettings(**{**SETTINGS, "assignors": (get("range"),), **settings}), 0))


def joined(driver: Driver, *partitions: int) -> Driver:
    """Brings a member of a consumer group to the state "Stable" in epoch 1."""
    driver.step()
    driver.beats(beat(1, *partitions))
    driver.handle(Assigned)
    driver.beats(beat(1))
    assert driver.machine.state is ConsumerState.STABLE
    return driver


def test_a_commit_of_a_lost_membership_does_not_end_the_next_reconciliation() -> None:
    """A member sends a commit before a revocation. Then the coordinator fences the member, and the member joins again.

    The commit fails while the member adopts its new partitions. This adoption must continue.
    """
    driver = joined(consumer(lambda: {T[0]: 5, T[1]: 5}, auto_commit_ms=1_000_000), 0, 1)
    driver.step(INTERVAL_MS)
    driver.beats(beat(2, 0))
    commit = driver.take(OffsetCommitRequest)
    driver.step(INTERVAL_MS)
    driver.beats(beat(0, error=ErrorCode.UNKNOWN_MEMBER_ID))
    driver.handle(Lost)
    driver.beats(beat(5, 2))
    assert isinstance(driver.machine.event, Assigned)
    driver.machine.failed(commit, ConnectionClosedError("lost"), driver.now_ms)
    driver.step(2_000)
    driver.handle(Assigned)
    driver.beats(beat(5))
    assert driver.machine.assignment == {T[2]}
    assert driver.machine.fetchable(T[2])


def test_a_commit_of_a_lost_membership_does_not_make_the_member_adopt_its_target() -> None:
    """A member sends a commit, is fenced, and joins again. Later it sends a second commit before a revocation.

    The first commit fails while the second one has no response yet. The member must not adopt its new target meanwhile.
    """
    driver = joined(consumer(lambda: {T[0]: 5, T[2]: 5}, auto_commit_ms=1_000_000), 0, 1)
    driver.step(INTERVAL_MS)
    driver.beats(beat(2, 0))
    commit = driver.take(OffsetCommitRequest)
    driver.step(INTERVAL_MS)
    driver.beats(beat(0, error=ErrorCode.UNKNOWN_MEMBER_ID))
    driver.handle(Lost)
    driver.beats(beat(5, 2, 3))
    driver.handle(Assigned)
    driver.beats(beat(5))
    driver.step(INTERVAL_MS)
    driver.beats(beat(6, 3))
    driver.machine.failed(commit, ConnectionClosedError("lost"), driver.now_ms)
    driver.step(2_000)
    assert driver.machine.assignment == {T[2], T[3]}
    assert driver.machine.event is None


def test_a_refusal_that_arrives_after_the_member_has_left_does_not_stop_its_heartbeats() -> None:
    driver = joined(consumer(), 0)
    driver.step(INTERVAL_MS)
    late = driver.take(ConsumerGroupHeartbeatRequest)
    driver.step(SETTINGS["rebalance_timeout_ms"] + 1, polls=False)  # type: ignore[operator]
    leave = driver.take(ConsumerGroupHeartbeatRequest)
    assert driver.machine.state is ConsumerState.STALE
    driver.respond(late, beat(0, error=ErrorCode.INVALID_REQUEST))
    driver.respond(leave, beat(-1))
    driver.handle(Lost)
    driver.step()
    assert driver.machine.fatal is None
    driver.beats(beat(7, 1))
    driver.handle(Assigned)
    driver.beats(beat(7))
    driver.step(INTERVAL_MS)
    driver.beats(beat(7))
    assert driver.machine.assignment == {T[1]}


def test_the_response_of_an_ended_membership_assigns_no_partitions_to_the_next_one() -> None:
    driver = joined(consumer(), 0)
    driver.step(INTERVAL_MS)
    late = driver.take(ConsumerGroupHeartbeatRequest)
    driver.step(SETTINGS["rebalance_timeout_ms"] + 1, polls=False)  # type: ignore[operator]
    driver.handle(Lost)
    driver.step()
    assert driver.machine.state is ConsumerState.JOINING
    driver.respond(late, beat(2, 0, 1))
    driver.step()
    assert (driver.machine.state, driver.machine.epoch, driver.machine.event) == (ConsumerState.JOINING, -1, None)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_refused_joins_of_a_consumer_group_are_repeated_with_a_backoff(code: ErrorCode) -> None:
    driver = consumer()
    joins = 0
    for _ in range(1_000):
        driver.step(1)
        if driver.sent:
            joins += 1
            driver.beats(beat(0, error=code))
    assert 3 <= joins <= 10


@pytest.mark.parametrize(
    "code", [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_refused_joins_of_a_classic_group_are_repeated_with_a_backoff(code: ErrorCode) -> None:
    driver = classic()
    joins = 0
    for _ in range(1_000):
        driver.step(1)
        while driver.sent:
            joins += 1
            driver.respond(driver.take(JoinGroupRequest), JoinGroupResponse(error_code=code, member_id="m"))
            driver.machine.advance(driver.now_ms)
            driver.sent += driver.machine.take_requests()
            assert joins < 50
    assert 5 <= joins <= 14


def test_a_classic_group_that_never_settles_is_joined_with_a_backoff() -> None:
    driver = classic()
    joins = 0
    for _ in range(1_000):
        driver.step(1)
        while driver.sent:
            outgoing = driver.sent.pop()
            if isinstance(outgoing.request, JoinGroupRequest):
                joins += 1
                response: Any = JoinGroupResponse(
                    generation_id=joins, member_id="m", leader="other", protocol_type="consumer", protocol_name="range"
                )
            else:
                assert isinstance(outgoing.request, SyncGroupRequest)
                response = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            driver.respond(outgoing, response)
            driver.machine.advance(driver.now_ms)
            driver.sent += driver.machine.take_requests()
            assert joins < 50
    assert 5 <= joins <= 14


def test_a_revocation_that_the_listener_fails_is_repeated_with_a_backoff() -> None:
    driver = joined(consumer(), 0, 1)
    driver.step(INTERVAL_MS)
    driver.beats(beat(2, 0))
    calls = 0
    for _ in range(1_000):
        if driver.machine.event is not None:
            calls += 1
            driver.handle(Revoked, ValueError("injected"))
        driver.step(1)
        for each in driver.sent:
            driver.respond(each, beat(2))
        driver.sent.clear()
    assert 3 <= calls <= 10
    while driver.machine.event is None:
        driver.step(100)
    driver.handle(Revoked)
    driver.handle(Assigned)
    assert driver.machine.assignment == {T[0]}


def test_a_classic_member_that_may_not_rebalance_wakes_only_for_its_heartbeat() -> None:
    driver = classic()
    machine = driver.machine
    driver.step()
    machine.state = ClassicState.STABLE
    machine.generation = Generation(1, "m", "range")
    machine._session_deadline_ms = machine._heartbeat_at_ms = 1_000
    driver.sent.clear()
    machine._in_flight = ""
    machine.may_rebalance = False
    machine.rejoin("test")
    driver.step()
    assert machine.wake_ms() == 1_000
    machine.may_rebalance = True
    assert machine.wake_ms() <= driver.now_ms


def test_a_member_without_an_interval_sends_heartbeats_at_the_default_interval() -> None:
    driver = consumer()
    driver.step()
    driver.beats(beat(1, 0, interval_ms=0))
    driver.handle(Assigned)
    driver.beats(beat(1, interval_ms=0))
    driver.step(INTERVAL_MS - 1)
    assert not driver.sent
    driver.step(1)
    driver.take(ConsumerGroupHeartbeatRequest)


def test_a_commit_without_a_result_for_a_partition_is_no_success() -> None:
    driver = joined(consumer(), 0)
    commit = driver.machine.commit({T[0]: 1}, driver.now_ms)
    driver.step()
    driver.respond(driver.take(OffsetCommitRequest), OffsetCommitResponse(topics=[]))
    assert commit.done
    assert isinstance(commit.error, MalformedResponseError)


def test_the_end_of_a_machine_begins_no_step_of_a_rebalance() -> None:
    driver = joined(consumer(lambda: {T[1]: 5}, auto_commit_ms=1_000_000), 0, 1)
    driver.step(INTERVAL_MS)
    driver.beats(beat(2, 0))
    driver.take(OffsetCommitRequest)
    driver.machine.abandon()
    assert driver.machine.event is None
    assert driver.machine.take_requests() == []


def test_a_member_without_partitions_repeats_its_heartbeat_soon() -> None:
    """A member without partitions repeats its heartbeat after `EMPTY_PAUSE_MS`. Each further pause is twice as long, up
    to the heartbeat interval.

    The coordinator may compute the postponed assignment only when it receives a later heartbeat.
    """
    driver = consumer()
    driver.step()
    driver.beats(beat(1))
    driver.handle(Assigned)
    times = []
    while driver.now_ms < 4 * INTERVAL_MS:
        driver.step(100)
        if driver.sent:
            times.append(driver.now_ms)
            driver.beats(beat(1))
    pauses = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert pauses[:8] == [EMPTY_PAUSE_MS << n for n in range(6)] + [INTERVAL_MS] * 2
