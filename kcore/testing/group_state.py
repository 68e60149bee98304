"""The state of one group at one moment, in one form for groups of all types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.group import ConsumerGroup
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolAssignment
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.codec.plan import DecodeError

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.group.group import Group
    from kcore.group.shard import GroupShard
    from kcore.runtime import Shard

NO_GROUP = "Dead"
"""The `state` of the snapshot of a group that does not exist."""


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of a group.

    Attributes:
        member_id: the id of the member in the group.
        instance_id: the group instance id; None for a dynamic member.
        client_id: the client id of the member's requests.
        epoch: the member epoch; in a classic group the group's generation.
        partitions: the partitions that the member owns.
        joining: True while its JoinGroup request is parked (classic groups).
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    epoch: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    joining: bool = False


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one moment.

    Attributes:
        group_id: the id of the group.
        kind: "classic", "consumer", "share", "streams"; "" if the group does not exist.
        state: the group's state under Kafka's name; "Dead" if the group does not exist.
        epoch: the generation of a classic group, the group epoch of others; -1 without a group.
        members: the group's members by id.
    """

    group_id: str
    kind: str = ""
    state: str = NO_GROUP
    epoch: int = -1
    members: Mapping[str, MemberState] = field(default_factory=dict)

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Returns the owners of each partition. Only in a share group can a partition have several owners."""
        found: dict[TopicPartition, list[str]] = {}
        for member in self.members.values():
            for partition in sorted(member.partitions):
                found.setdefault(partition, []).append(member.member_id)
        return found


def shard_of(engine: Engine, group_id: str) -> Shard[GroupShard]:
    """Returns the shard of a group.

    Raises:
        KafkaError: NOT_COORDINATOR, because the test has unloaded the group's coordinator.
    """
    return engine.groups.of(group_id)


def find_group(engine: Engine, group_id: str) -> Group | None:
    """Returns the group, or None if it does not exist or its coordinator is not loaded."""
    shard = engine.groups.find(group_id)
    return None if shard is None else shard.machine.groups.get(group_id)


def snapshot(engine: Engine, group_id: str) -> GroupSnapshot:
    """Returns the present state of a group; call it on the engine's thread."""
    group = find_group(engine, group_id)
    if group is None:
        return GroupSnapshot(group_id)
    kind = group.group_type.value
    if isinstance(group, ClassicGroup):
        return GroupSnapshot(group_id, kind, group.state_name(), group.generation_id, _classic_members(group))
    epoch: int = getattr(group, "group_epoch", -1)
    members: Mapping[str, Any] = getattr(group, "members", {})
    if isinstance(group, ConsumerGroup):
        found = {member_id: _consumer_member(engine, member) for member_id, member in members.items()}
    else:
        found = {member_id: MemberState(member_id, epoch=epoch) for member_id in members}
    return GroupSnapshot(group_id, kind, group.state_name(), epoch, found)


def _classic_members(group: ClassicGroup) -> dict[str, MemberState]:
    stable = group.state_name() == "Stable"
    return {
        member_id: MemberState(
            member_id,
            member.group_instance_id,
            member.client_id,
            group.generation_id,
            _classic_partitions(group.protocol_type, member.assignment) if stable else frozenset(),
            member.awaiting_join is not None,
        )
        for member_id, member in group.members.items()
    }


def _classic_partitions(protocol_type: str, assignment: bytes) -> frozenset[TopicPartition]:
    if protocol_type != PROTOCOL_TYPE or not assignment:
        return frozenset()
    try:
        decoded, _ = ConsumerProtocolAssignment.decode_versioned(assignment)
    except DecodeError:
        return frozenset()
    return frozenset(TopicPartition(row.topic, p) for row in decoded.assigned_partitions for p in row.partitions)


def _consumer_member(engine: Engine, member: Any) -> MemberState:
    current, metadata = member.current, member.metadata
    return MemberState(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        current.member_epoch,
        frozenset(_named(engine, current.assigned)),
    )


def _named(engine: Engine, owned: Mapping[bytes, Iterable[int]]) -> Iterable[TopicPartition]:
    for topic_id, partitions in owned.items():
        topic = engine.topics.by_id(topic_id)
        if topic is not None:
            for partition in partitions:
                yield TopicPartition(topic.name, partition)
