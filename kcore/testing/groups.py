"""The groups of a test broker: their state, and faults of their coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kcore.errors import KafkaError, KcoreError
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.rebalance import maybe_prepare_rebalance
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.records import group_epoch
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import TopicPartition
from kcore.runtime.machine import Outcome
from kcore.runtime.partitioner import partition_for
from kcore.testing.arguments import check_text
from kcore.testing.group_state import GroupSnapshot, MemberState, find_group, shard_of, snapshot
from kcore.testing.history import History

if TYPE_CHECKING:
    from kcore.group.group import Group
    from kcore.testing.recorder import ObservedEngine

T = TypeVar("T")


class Target(Protocol):
    """A broker or a node whose groups are tested."""

    def call(self, function: Callable[[ObservedEngine], T]) -> T:
        """Calls `function` with the engine."""
        ...

    def history(self, group_id: str) -> History:
        """Returns the history of a group."""
        ...


class TestGroup:
    """A group of a test broker. It need not exist.

    Args:
        broker: the broker or node.
        group_id: the id of the group.
    """

    __test__ = False  # pytest collects classes by their names

    def __init__(self, broker: Target, group_id: str) -> None:
        check_text("group_id", group_id)
        self._broker = broker
        self.group_id = group_id

    # ---- state

    def snapshot(self) -> GroupSnapshot:
        """Returns the present state of the group."""
        return self._broker.call(lambda engine: snapshot(engine, self.group_id))

    @property
    def state(self) -> str:
        """The state under Kafka's name ("Stable"); "Dead" if the group does not exist."""
        return self.snapshot().state

    @property
    def epoch(self) -> int:
        """The generation of a classic group, the group epoch of others; -1 if the group does not exist."""
        return self.snapshot().epoch

    @property
    def members(self) -> Mapping[str, MemberState]:
        """The members by id."""
        return self.snapshot().members

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The committed offsets."""

        def read(engine: ObservedEngine) -> dict[TopicPartition, int]:
            topics = shard_of(engine, self.group_id).machine.offsets.topics(self.group_id)
            return {
                TopicPartition(topic, partition): entry.committed_offset
                for topic, partitions in topics.items()
                for partition, entry in partitions.items()
            }

        return self._broker.call(read)

    def history(self) -> History:
        """Returns the history of the group."""
        return self._broker.history(self.group_id)

    def member(self, client_id: str) -> MemberState:
        """Returns the member with a client id.

        Raises:
            LookupError: no member or several members have this client id.
        """
        members = self.members.values()
        found = [member for member in members if member.client_id == client_id]
        if len(found) != 1:
            others = sorted({member.client_id for member in members})
            text = f"group {self.group_id} has {len(found)} members with client id {client_id!r}, not one"
            raise LookupError(f"{text}; the client ids of its members are {others}")
        return found[0]

    # ---- faults of the coordinator

    def rebalance(self) -> None:
        """Begins a rebalance: the members of a classic group must join again; a group of another type gets a new epoch.

        It returns at once, before the members have joined again. It has no effect on a classic group in the state
        PreparingRebalance.

        Raises:
            LookupError: the group does not exist.
        """

        def decide(group: Group) -> Outcome | None:
            if isinstance(group, ClassicGroup):
                return Outcome(maybe_prepare_rebalance(group, "a test began a rebalance"))
            if isinstance(group, ConsumerGroup):
                return Outcome([group_epoch(self.group_id, group.group_epoch + 1, group.metadata_hash)])
            raise KcoreError(
                f"group {self.group_id} is a {group.group_type.value} group: rebalance() supports only classic and "
                "consumer groups"
            )

        self._decide("rebalance()", decide)

    def expire(self, member_id: str | None = None, *, client_id: str | None = None) -> None:
        """Ends the session of a member, as if it had sent no heartbeat for its session timeout.

        Args:
            member_id: the member's id.
            client_id: the client id of the member, instead of `member_id`; no other member may have it.

        Raises:
            LookupError: the group or the member does not exist.
        """
        member_id = self._id_of(member_id, client_id)
        self._decide(f"expire({member_id})", lambda group: self._remove(group, member_id))

    def fence(self, member_id: str | None = None, *, client_id: str | None = None) -> None:
        """Fences a member: the coordinator refuses its later requests.

        A static member of a classic group is replaced by a member that does not exist outside of the coordinator. Later
        requests of the static member fail with FENCED_INSTANCE_ID. Any other member is removed from the group, and its
        requests fail with UNKNOWN_MEMBER_ID. On a `Broker`, the next heartbeat of a member of a consumer group
        (KIP-848) fails with FENCED_MEMBER_EPOCH instead.

        Args:
            member_id: the member's id.
            client_id: the client id of the member, instead of `member_id`; no other member may have it.

        Raises:
            LookupError: the group or the member does not exist.
        """
        member_id = self._id_of(member_id, client_id)
        state = self._existing(member_id)

        def decide(group: Group) -> Outcome | None:
            if isinstance(group, ClassicGroup) and state.instance_id is not None:
                group.replace_static_member(group.members[member_id], f"{state.instance_id}-fenced-by-a-test")
                return None
            return self._remove(group, member_id)

        self._decide(f"fence({member_id})", decide)
        fail = getattr(self._broker, "fail", None)  # a node without a listener has no protocol faults
        if fail is not None and self._broker.call(self._is_consumer):
            fail(
                "ConsumerGroupHeartbeat",
                "FENCED_MEMBER_EPOCH",
                group=self.group_id,
                where=lambda request: request.member_id == member_id and request.member_epoch > 0,
            )

    def _is_consumer(self, engine: ObservedEngine) -> bool:
        return isinstance(find_group(engine, self.group_id), ConsumerGroup)

    def unload_coordinator(self) -> None:
        """Unloads the group's coordinator: requests for the group get NOT_COORDINATOR until `load_coordinator`.

        Requests that wait for a rebalance get this error at once. Every group of the same coordinator partition is
        affected.
        """

        def unload(engine: ObservedEngine) -> None:
            index = partition_for(self.group_id, engine.groups.partitions)
            engine.recorder.add(self.group_id, "control", cause="test: unload_coordinator()")
            engine.groups.unload(index)

        self._broker.call(unload)

    def load_coordinator(self) -> None:
        """Loads the coordinator from its log; sessions of members begin again."""

        def load(engine: ObservedEngine) -> None:
            index = partition_for(self.group_id, engine.groups.partitions)
            engine.recorder.add(self.group_id, "control", cause="test: load_coordinator()")
            engine.groups.load(index, engine.log.node_epoch)
            engine.slices.finish()

        self._broker.call(load)

    def move_coordinator(self) -> None:
        """Unloads the coordinator and loads it again, as if it had moved: waiting requests get NOT_COORDINATOR."""
        self.unload_coordinator()
        self.load_coordinator()

    # ---- helpers

    def _id_of(self, member_id: str | None, client_id: str | None) -> str:
        if member_id is not None and client_id is None:
            return member_id
        if client_id is not None and member_id is None:
            return self.member(client_id).member_id
        raise TypeError("give either member_id or client_id")

    def _existing(self, member_id: str) -> MemberState:
        state = self.snapshot()
        if not state.kind:
            raise LookupError(f"group {self.group_id} does not exist")
        if member_id not in state.members:
            raise LookupError(f"group {self.group_id} has no member {member_id!r}; it has {sorted(state.members)}")
        return state.members[member_id]

    def _remove(self, group: Group, member_id: str) -> Outcome | None:
        members: Mapping[str, Any] = getattr(group, "members", {})
        member = members.get(member_id)
        if member is None:
            raise LookupError(f"group {self.group_id} has no member {member_id!r}; it has {sorted(members)}")
        if isinstance(group, ClassicGroup):
            return group.expire_member(member)
        if isinstance(group, ConsumerGroup):
            return group.expire(member, "a test ended its session")
        raise KcoreError(f"group {self.group_id} is a {group.group_type.value} group: its members cannot be removed")

    def _decide(self, what: str, decide: Callable[[Group], Outcome | None]) -> None:
        """Runs `decide` in the group's coordinator, as if a timer had fired, and adds the effects to the history."""

        def run(engine: ObservedEngine) -> None:
            group = find_group(engine, self.group_id)
            if group is None:
                raise LookupError(f"group {self.group_id} does not exist, or its coordinator is not loaded")
            cause = f"test: {what}"
            refusals: list[Exception] = []

            def action() -> Outcome | None:
                try:
                    return decide(group)
                except (LookupError, KcoreError) as error:
                    refusals.append(error)
                    return None

            refused = shard_of(engine, self.group_id).perform(action)
            if refusals:
                raise refusals[0]
            if refused is not None and refused is not ErrorCode.NONE:
                raise KafkaError.of(refused)
            engine.recorder.add(self.group_id, "control", cause=cause)
            engine.recorder.look(engine, self.group_id, cause)

        self._broker.call(run)


class TestGroups:
    """The groups of a test broker, by id: `broker.groups["workers"]`.

    Args:
        broker: the broker or node.
    """

    __test__ = False

    def __init__(self, broker: Target) -> None:
        self._broker = broker

    def __getitem__(self, group_id: str) -> TestGroup:
        """Returns a group, which need not exist."""
        return TestGroup(self._broker, group_id)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.ids())

    def ids(self) -> list[str]:
        """Returns the ids of the existing groups."""
        return self._broker.call(
            lambda engine: sorted(name for shard in engine.groups for name in shard.machine.groups)
        )
