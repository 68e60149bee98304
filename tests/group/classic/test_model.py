"""A classic group stays consistent under any interleaving of members, timeouts, crashes and failed commits
(hypothesis).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from kcore.group.classic.group import ClassicGroup
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupResponse
from kcore.protocol.messages.sync_group import SyncGroupResponse
from kcore.protocol.records.group_metadata import GroupMetadataValue
from tests.group.classic.world import CHANGED, COMPLETING, DEAD, EMPTY, META, PREPARING, RANGE, STABLE, World
from tests.group.context import Call

OFFERS = st.sampled_from(
    [RANGE, [("range", CHANGED)], [("sticky", META), ("range", META)], [("range", META), ("other", b"?")]]
)
INSTANCES = st.sampled_from(["one", "two"])
SESSIONS_MS = st.sampled_from([400, 1000, 5000])
REBALANCES_MS = st.sampled_from([300, 2000, 8000])
LONG_ENOUGH_MS = 1_000_000  # maximum time for which a request may be parked: new members have five minutes


class ClassicGroupMachine(RuleBasedStateMachine):
    """Members of one group send any request at any time. After each step the group must be consistent.

    `ids` holds every member id that was ever assigned, current or not.
    """

    ids = Bundle("ids")

    @initialize(delay_ms=st.sampled_from([0, 700]), max_size=st.sampled_from([3, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        self.world = World({"group.initial.rebalance.delay.ms": delay_ms, "group.max.size": max_size})
        self.calls: list[Call] = []
        self.generation = 0
        self.recorded: GroupMetadataValue | None = None
        self.of_generation: dict[int, tuple[str, str | None]] = {}

    def group(self) -> ClassicGroup | None:
        group = self.world.context.machine.groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    def sent(self, call: Call) -> Call:
        self.calls.append(call)
        return call

    def ids_of(self, call: Call) -> Any:
        """Returns the member ids in a response, or the ids of all members if the request is parked."""
        group = self.group()
        known = [*group.members, *group.pending_joins] if group is not None else []
        return multiple(*known[-2:]) if not call.done else multiple(*filter(None, [call.response.member_id]))

    # ---- actions of members

    @rule(target=ids, offer=OFFERS, session_ms=SESSIONS_MS, rebalance_ms=REBALANCES_MS, version=st.sampled_from([3, 9]))
    def join(self, offer: Any, session_ms: int, rebalance_ms: int, version: int) -> Any:
        options = {"offer": offer, "session_ms": session_ms, "rebalance_ms": rebalance_ms}
        return self.ids_of(self.sent(self.world.join(version=version, **options)))

    @rule(target=ids, instance=INSTANCES, offer=OFFERS, session_ms=SESSIONS_MS, version=st.sampled_from([5, 9]))
    def join_static(self, instance: str, offer: Any, session_ms: int, version: int) -> Any:
        call = self.world.join(
            instance=instance, offer=offer, session_ms=session_ms, rebalance_ms=2000, version=version
        )
        return self.ids_of(self.sent(call))

    @rule(member_id=ids, offer=OFFERS, rebalance_ms=REBALANCES_MS)
    def rejoin(self, member_id: str, offer: Any, rebalance_ms: int) -> None:
        self.sent(self.world.join(member_id, offer=offer, rebalance_ms=rebalance_ms, session_ms=1000))

    @rule(member_id=ids, late=st.booleans())
    def sync(self, member_id: str, late: bool) -> None:
        group = self.group()
        generation = (group.generation_id if group is not None else 1) - late
        given = {name: f"{name} in {generation}".encode() for name in (group.members if group is not None else ())}
        self.sent(self.world.sync(member_id, given, generation=generation, protocol_name=None, version=4))

    @rule(member_id=ids)
    def beat(self, member_id: str) -> None:
        group = self.group()
        self.world.beat(member_id, generation=group.generation_id if group is not None else 1)

    @rule(member_id=consumes(ids))
    def leave(self, member_id: str) -> None:
        self.world.leave(member_id)

    @rule(instance=INSTANCES)
    def remove_static(self, instance: str) -> None:
        self.world.leave(("", instance))

    @rule()
    def all_rejoin(self) -> None:
        group = self.group()
        for member in list(group.members.values()) if group is not None else ():
            offer = member.protocols
            self.sent(self.world.join(member.member_id, offer=offer, session_ms=5000, rebalance_ms=2000))

    @precondition(lambda self: self.group() is not None and self.group().state is COMPLETING)
    @rule(followers_first=st.booleans())
    def all_sync(self, followers_first: bool) -> None:
        group = self.group()
        assert group is not None
        order = sorted(group.members, key=lambda name: (name == group.leader_id) is followers_first)
        for name in order:
            given = {other: f"{other} in {group.generation_id}".encode() for other in group.members}
            self.sent(self.world.sync(name, given, protocol_name=None, version=4))

    @rule()
    def delete(self) -> None:
        group = self.group()
        expected = 69 if group is None else 0 if group.state is EMPTY else 68
        assert self.world.delete("g") == {"g": expected}
        if expected == 0:
            self.recorded, self.generation, self.of_generation = None, 0, {}

    # ---- events

    @rule(ms=st.sampled_from([1, 100, 299, 300, 700, 1000, 2500, 9000]))
    def time_passes(self, ms: int) -> None:
        self.world.context.advance(ms)

    @rule()
    def crash(self) -> None:
        """Simulates a crash. Parked requests never get a response, because their connections end with the process."""
        self.world.restart()
        self.calls = [call for call in self.calls if call.done]
        self.shows_what_was_recorded()

    @rule()
    def disk_fails(self) -> None:
        """Makes the commit of a new group fail."""
        self.world.context.fail_next_commit()
        self.sent(self.world.join(group="another"))
        assert not self.world.context.engine.failures_left
        self.shows_what_was_recorded()
        assert all(call.done for call in self.calls)

    def shows_what_was_recorded(self) -> None:
        """Checks that a reload restores exactly the last record."""
        group, value = self.group(), self.recorded
        assert "another" not in self.world.context.machine.groups
        if value is None:
            assert group is None
            return
        assert group is not None
        assert group.state is (STABLE if value.members else EMPTY) or len(group.members) > 3
        assert (group.generation_id, group.protocol_name) == (value.generation, value.protocol)
        assert [(m.member_id, m.group_instance_id, m.assignment) for m in group.members.values()] == [
            (m.member_id, m.group_instance_id, m.assignment) for m in value.members
        ]
        self.generation = value.generation
        self.of_generation = {g: terms for g, terms in self.of_generation.items() if g <= value.generation}

    # ---- invariants

    @invariant()
    def last_record_has_the_last_generation(self) -> None:
        """Checks that records are in the order of generations, and that the last record equals the state after a
        restart.
        """
        for key, value in self.world.context.records():
            if key.group == "g":
                assert value is None or self.recorded is None or value.generation >= self.recorded.generation
                self.recorded = value
        if self.recorded is None:
            assert self.group() is None

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.group()
        if group is not None:
            assert group.generation_id >= self.generation
            self.generation = group.generation_id

    @invariant()
    def counts_and_indexes_agree(self) -> None:
        """Checks that all counts and indexes agree with the members."""
        group = self.group()
        if group is None:
            return
        members = group.members.values()
        assert group.members_awaiting_join == sum(member.awaiting_join is not None for member in members)
        assert group.supported_protocols == Counter(name for member in members for name, _ in member.protocols)
        assert group.static_members == {m.group_instance_id: m.member_id for m in members if m.group_instance_id}
        assert not group.pending_joins.keys() & group.members.keys()
        assert (group.leader_id is None) is (not group.members)
        assert group.leader_id is None or group.leader_id in group.members
        assert all(member.group is group for member in members)
        assert all(member.timer.armed or member.awaiting_join or member.awaiting_sync for member in members)
        assert all(pending.timer.armed for pending in group.pending_joins.values())

    @invariant()
    def state_agrees_with_members(self) -> None:
        group = self.group()
        if group is None:
            return
        state, members = group.state, group.members.values()
        assert state is not DEAD
        assert (group.join_phase is not None and group.join_phase.armed) is (state is PREPARING)
        assert group.sync_phase is None or state in (COMPLETING, STABLE)
        assert state is not EMPTY or not group.members
        assert group.members or state in (EMPTY, PREPARING)
        if state is not PREPARING:
            assert not any(member.awaiting_join for member in members)
        if state is not COMPLETING:
            assert not any(member.awaiting_sync for member in members)
        if state in (COMPLETING, STABLE):
            assert group.supported_protocols[group.protocol_name or ""] == len(group.members)
            assert not any(member.is_new for member in members)

    @invariant()
    def members_of_a_generation_get_the_same_response(self) -> None:
        """Checks that each generation has one leader and one protocol, and that only the leader's response lists the
        members.
        """
        for call in self.calls:
            response = call.response
            if isinstance(response, JoinGroupResponse) and not response.error_code:
                assert not response.members or response.leader == response.member_id
                terms = self.of_generation.setdefault(response.generation_id, (response.leader, response.protocol_name))
                assert terms[1] == response.protocol_name
            if isinstance(response, SyncGroupResponse) and response.assignment:
                _, generation = response.assignment.decode().split(" in ")
                assert int(generation) <= self.generation
        self.calls = [call for call in self.calls if not call.done]

    def teardown(self) -> None:
        """Checks the end of a run: all parked requests have completed, and two new members and the remaining members
        agree on a generation.
        """
        if not hasattr(self, "world"):
            return
        world = self.world
        world.context.advance(LONG_ENOUGH_MS)
        assert all(call.done for call in self.calls)
        first = world.join(instance="last", version=9, session_ms=5000, rebalance_ms=2000)
        second = world.join(instance="but one", version=9, session_ms=5000, rebalance_ms=2000)
        world.context.advance(1500)
        group = self.group()
        assert group is not None
        if not first.done:  # a static member is absent: the rebalance timeout decides
            world.context.advance(2500)
        codes = {call.response.error_code for call in (first, second)}
        assert codes == {ErrorCode.NONE}, codes
        for name in sorted(group.members, key=lambda name: name == group.leader_id):
            world.sync(name, {other: other.encode() for other in group.members}, protocol_name=None, version=4)
        assert group.state is STABLE
        assert {name: member.assignment for name, member in group.members.items()} == {
            name: name.encode() for name in group.members
        }
        before = world.describe()
        world.restart()
        assert world.describe() == before


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
