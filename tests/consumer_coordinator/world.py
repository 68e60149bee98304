"""State machines of members and a real engine, in virtual time. Requests can be delayed, lost or served twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kcore.assignors import get
from kcore.client.consumer_coordinator.base import GroupMemberMachine
from kcore.client.consumer_coordinator.classic import ClassicMember
from kcore.client.consumer_coordinator.consumer import ConsumerMember
from kcore.client.consumer_coordinator.interface import (
    Assigned,
    Commit,
    Lost,
    MemberEvent,
    MemberSettings,
    Outgoing,
    Revoked,
)
from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.embed import SyncEngine
from kcore.engine import Engine
from kcore.errors import ConnectionClosedError
from kcore.log import MemoryLogEngine
from kcore.protocol.messages.offset_commit import OffsetCommitRequest
from kcore.protocol.topic_partition import TopicPartition
from kcore.runtime import Pending
from tests.kit import make_topic

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "kcore.durability": "memory",
}


TIMES = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "heartbeat_interval_ms": 1_000}


class Handled:
    """A member as its user sees it: the partitions that it owns according to its events.

    Attributes:
        owned: partition -> the epoch of the event that assigned it.
        events: all events, in order.
    """

    def __init__(self, world: World, name: str, machine: GroupMemberMachine) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.owned: dict[TopicPartition, int] = {}
        self.events: list[MemberEvent] = []
        self.repeated: set[TopicPartition] = set()  # the listener failed: the coordinator assigns them again
        self.errors: list[BaseException] = []
        self.commits: list[Commit] = []

    def handle(self, error: BaseException | None = None) -> None:
        """Handles the current event as a user's listener does."""
        event = self.machine.event
        assert event is not None, "the member has no event"
        self.events.append(event)
        if isinstance(event, Assigned):
            for partition in event.partitions:
                assert partition not in self.owned, f"{self.name} gets {partition} twice"
                self.owned[partition] = event.epoch
        else:
            for partition in event.partitions:
                known = partition in self.owned or partition in self.repeated
                assert known, f"{self.name} loses {partition}, which it does not own"
                if isinstance(event, Revoked):
                    assert partition in self.machine.assignment, (
                        "a revoked partition is no longer assigned before its event"
                    )
                self.owned.pop(partition, None)
        if error is not None and not isinstance(event, Assigned):
            self.repeated.update(event.partitions)
        else:
            self.repeated.difference_update(event.partitions)
        self.machine.event_done(error, self.world.now_ms)

    @property
    def lost(self) -> list[Lost]:
        """Returns the events that report lost partitions."""
        return [event for event in self.events if isinstance(event, Lost)]


MAX_ADVANCES = 5
"""Maximum number of advances of a member at one virtual time. An advance may make a further advance possible."""


class World:
    """One engine, a clock, and members.

    Args:
        seed: the seed of all random choices.
        topics: topic -> number of partitions.
    """

    def __init__(self, seed: int = 0, **topics: int) -> None:
        self.random = random.Random(seed)
        random.seed(seed)  # the machines draw the jitter of their pauses from it
        self.clock = ManualClock()
        uuids = random.Random(seed)
        engine = Engine(MemoryLogEngine(), Config.of(SETTINGS), self.clock, lambda: uuids.randbytes(16))
        self.engine = SyncEngine(engine)
        for name, partitions in topics.items():
            make_topic(self.engine, name, partitions)
        self.members: list[Handled] = []
        self.responses: list[tuple[Handled, Outgoing, Any]] = []  # responses that are not delivered yet
        self.cut: set[str] = set()  # members without a connection
        self.manual: set[str] = set()  # members whose events the test handles

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self.clock.monotonic_ms()

    def close(self) -> None:
        """Closes the engine."""
        self.engine.close()

    def member(
        self,
        name: str,
        *topics: str,
        protocol: str = "consumer",
        assignors: Sequence[str] = ("range",),
        **settings: Any,
    ) -> Handled:
        """Adds a member that subscribes to topics."""
        consumed = settings.pop("consumed", dict)
        chosen = MemberSettings(
            group_id="g",
            topics=topics,
            assignors=tuple(get(each) for each in assignors) if protocol == "classic" else (),
            **{
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "heartbeat_interval_ms": 1_000,
                **settings,
            },
        )
        machine: GroupMemberMachine
        if protocol == "classic":
            machine = ClassicMember(chosen, self.now_ms, consumed=consumed)
        else:
            machine = ConsumerMember(chosen, self.now_ms, consumed=consumed, member_id=f"id-{name}")
        handled = Handled(self, name, machine)
        self.members.append(handled)
        return handled

    # ---- running

    def step(self, member: Handled, poll: bool = True) -> None:
        """Advances a member and passes its requests to the engine."""
        machine = member.machine
        if poll:
            machine.poll(self.now_ms)
        machine.advance(self.now_ms)
        for _ in range(MAX_ADVANCES):
            if (wake_ms := machine.wake_ms()) is None or wake_ms > self.now_ms:
                break
            machine.advance(self.now_ms)
        else:
            raise AssertionError(f"{member.name} is advanced again and again: {machine.state}, wakes at {wake_ms}")
        error = machine.take_error()
        if error is not None:
            member.errors.append(error)
        for outgoing in machine.take_requests():
            self.carry(member, outgoing)
        if machine.event is not None and member.name not in self.manual:
            member.handle()

    def carry(self, member: Handled, outgoing: Outgoing) -> None:
        """Passes a request to the engine; queues the response."""
        if member.name in self.cut:
            self.responses.append((member, outgoing, ConnectionClosedError("cut")))
            return
        request = outgoing.request
        commits = isinstance(request, OffsetCommitRequest)
        valid = commits and self.is_member(request.member_id, request.generation_id_or_member_epoch)
        response = self.engine.start(request, outgoing.at_most, client_id=member.name)
        if commits:
            self.check_commit(member, request, valid, response)
        if isinstance(response, Pending):
            response.on_complete(lambda value: self.responses.append((member, outgoing, value)))
        else:
            self.responses.append((member, outgoing, response))

    def is_member(self, member_id: str, epoch: int) -> bool:
        """Returns True if the coordinator has the member and has not fenced this member epoch.

        A member of a consumer group whose last response was lost has an older epoch than the coordinator. Such a member
        keeps its partitions and may commit their offsets.
        """
        group = self.engine.engine.groups.get(0).machine.groups.get("g")
        found = None if group is None else group.members.get(member_id)
        if found is None:
            return False
        if hasattr(found, "current"):
            return bool(0 < epoch <= found.current.member_epoch)
        return bool(group.generation_id == epoch)

    def check_commit(self, member: Handled, request: OffsetCommitRequest, valid: bool, response: Any) -> None:
        """Checks that a commit is sent in the member's present epoch, and accepted only from a current member."""
        machine = member.machine
        sent = (request.member_id, request.generation_id_or_member_epoch)
        assert sent[1] > 0, f"{member.name} commits outside of the group"
        assert sent == (machine.member_id, machine.epoch), f"{member.name} commits as {sent} after it was fenced"
        codes = {row.error_code for topic in response.topics for row in topic.partitions}
        assert valid or 0 not in codes, f"{member.name} committed though it is fenced"

    def deliver(self, index: int = 0) -> None:
        """Delivers one response, or the error that replaces it."""
        member, outgoing, response = self.responses.pop(index)
        if member.name in self.cut and not isinstance(response, Exception):
            response = ConnectionClosedError("cut")
        if isinstance(response, Exception):
            member.machine.failed(outgoing, response, self.now_ms)
        else:
            member.machine.received(outgoing, response, self.now_ms)

    def turn(self) -> None:
        """Steps every member and delivers every response."""
        for member in self.members:
            self.step(member)
        while self.responses:
            self.deliver()

    def run(self, ms: int, step_ms: int = 50) -> None:
        """Runs the engine and all members for some virtual time."""
        for _ in range(0, ms, step_ms):
            self.turn()
            self.engine.advance(step_ms)
        self.turn()

    def until(self, condition: Callable[[], Any], limit_ms: int = 120_000) -> None:
        """Runs the engine and all members until a condition holds."""
        for _ in range(0, limit_ms, 50):
            if condition():
                return
            self.turn()
            self.engine.advance(50)
        raise AssertionError(f"not within {limit_ms} ms: {[(m.name, m.machine.state) for m in self.members]}")  # type: ignore[attr-defined]

    def shares(self) -> dict[str, list[str]]:
        """Returns the owned partitions of each member."""
        return {member.name: sorted(map(str, member.owned)) for member in self.members}

    def complete(self, *topics: str) -> bool:
        """Returns True if every partition of the topics has exactly one owner."""
        owned = [partition for member in self.members for partition in member.owned]
        count = sum(self.engine.engine.topics.by_name(topic).partitions for topic in topics)  # type: ignore[union-attr]
        return len(owned) == len(set(owned)) == count
