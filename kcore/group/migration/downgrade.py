"""Conversion of a consumer group to a classic group after its last consumer member left.

The group epoch becomes the generation, and each member's target becomes its assignment. If the last consumer member
left, the classic group rebalances at once. If a classic member replaced it, the group rebalances only if a new target
is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.rebalance import prepare_rebalance
from kcore.group.classic.records import VALUE_VERSION, size_bound_bytes
from kcore.group.consumer import records as group_records
from kcore.group.migration.embedded import write_assignment
from kcore.group.migration.policy import migration_policy
from kcore.group.side_effects import LiveValue
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from kcore.protocol.records.group_metadata import MemberMetadata as RecordedMember
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember, MemberMetadata
    from kcore.group.consumer.member_update import MemberChange
    from kcore.group.shard import GroupShard

TOMBSTONE_BYTES: Final = 30
"""Upper bound of the size of a tombstone in a batch, without its key, in bytes."""


def downgrade_after(group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[Record] | None:
    """Returns the records that convert the group when members leave; None if it remains a consumer group.

    The group remains a consumer group if the record of the classic group would be too large for a decision. The members
    leave in any case, because otherwise the last consumer member would own its partitions forever.
    """
    if not _only_classic_remain(group, leaving, joining=0):
        return None
    leaving_ids = {member.member_id for member in leaving}
    remaining = {
        member_id: member.metadata for member_id, member in group.members.items() if member_id not in leaving_ids
    }
    records = group_records.group_tombstones(group)
    return _with_classic_group(records, group, group.group_epoch, remaining, next(iter(remaining)), {}, rebalance=True)


def downgrade_by_replacement(change: MemberChange, instance_id: str | None) -> list[Record] | None:
    """Returns the records that convert a group when its last consumer member, a static one, joins as a classic member.

    Returns None if the group remains a consumer group. The classic member may have the id of the consumer member or a
    new one. The other members see no change, unless a new target is due: then the group rebalances.

    Args:
        change: the change of the member that joins.
        instance_id: the instance id in the JoinGroup request; None for a dynamic member.
    """
    group = change.group
    old_id = None if instance_id is None else group.static_members.get(instance_id)
    old = None if old_id is None else group.members[old_id]
    if old is None or old.is_classic or not _only_classic_remain(group, [old], joining=1):
        return None
    remaining = {
        member_id: member.metadata for member_id, member in group.members.items() if member_id != old.member_id
    }
    leader_id = next(iter(remaining), change.member_id)
    remaining[change.member_id] = change.metadata
    records = group_records.group_tombstones(group, (old.member_id, change.member_id))
    due = change.group_epoch > group.assignment_epoch
    targets = {change.member_id: old.member_id}
    return _with_classic_group(records, group, change.group_epoch, remaining, leader_id, targets, rebalance=due)


def _only_classic_remain(group: ConsumerGroup, leaving: Sequence[ConsumerMember], joining: int) -> bool:
    remaining = len(group.members) - len(leaving)
    classic = group.subscriptions.classic_members - sum(member.is_classic for member in leaving)
    if classic != remaining or remaining + joining == 0:
        return False
    config = group.shard.config
    if not migration_policy(config.group_consumer_migration_policy).downgrade:
        return False
    return remaining + joining <= config.group_max_size


def _with_classic_group(
    records: list[Record],
    group: ConsumerGroup,
    generation_id: int,
    remaining: Mapping[str, MemberMetadata],
    leader_id: str,
    targets: Mapping[str, str],
    *,
    rebalance: bool,
) -> list[Record] | None:
    """Returns `records` and the record of the classic group; None if the records are too large for a decision.

    Args:
        records: the tombstones of the consumer group.
        group: the consumer group.
        generation_id: the group epoch.
        remaining: the members, all classic, by id.
        leader_id: the member that becomes the leader.
        targets: for each member that replaces another member and inherits its target: the id of the new member -> the
            id of the replaced member.
        rebalance: whether a join phase begins at once.
    """
    protocol = _choose_protocol(remaining)
    members = []
    for member_id, metadata in remaining.items():
        classic = metadata.classic
        assert classic is not None, member_id
        subscription = dict(classic.protocols)[protocol]
        target = group.target_of(targets.get(member_id, member_id))
        members.append(
            RecordedMember(
                member_id=member_id,
                group_instance_id=metadata.instance_id,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                rebalance_timeout=metadata.rebalance_timeout_ms,
                session_timeout=classic.session_timeout_ms,
                subscription=subscription,
                assignment=write_assignment(target, group.shard.topics, subscription),
            )
        )
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=generation_id,
        protocol=protocol,
        leader=leader_id,
        current_state_timestamp=group.shard.now.wall_ms,
        members=members,
    )
    group_id = group.group_id
    key = GroupMetadataKey(group=group_id)
    tombstone_bytes = sum(TOMBSTONE_BYTES + len(record.key.encode_key() or b"") for record in records)
    if tombstone_bytes + size_bound_bytes(Record(key, value, VALUE_VERSION)) > group.shard.max_record_bytes:
        return None

    def take_over(shard: GroupShard) -> None:
        _take_over(shard, group_id, remaining, rebalance)

    return [*records, Record(key, LiveValue(value, take_over), VALUE_VERSION)]


def _choose_protocol(remaining: Mapping[str, MemberMetadata]) -> str:
    """Returns the protocol that most members prefer among the protocols that all members support.

    The preference of the first member breaks ties.
    """
    offered = [metadata.classic.protocols for metadata in remaining.values() if metadata.classic is not None]
    support: dict[str, int] = {}
    for protocols in offered:
        for name, _ in protocols:
            support[name] = support.get(name, 0) + 1
    votes = {name: 0 for name, _ in offered[0] if support[name] == len(offered)}
    assert votes, "classic members without a common protocol are not admitted"
    for protocols in offered:
        for name, _ in protocols:
            if name in votes:
                votes[name] += 1
                break
    return max(votes, key=votes.__getitem__)


def _take_over(shard: GroupShard, group_id: str, remaining: Mapping[str, MemberMetadata], rebalance: bool) -> None:
    """Sets the soft state of a group that was converted to a classic group.

    Sets all protocols of each member, starts the session timers, and begins a rebalance if `rebalance` is True.
    """
    group = shard.groups[group_id]
    assert isinstance(group, ClassicGroup), group
    for member_id, metadata in remaining.items():
        member = group.members[member_id]
        if metadata.classic is not None:
            group.set_protocols(member, metadata.classic.protocols)
        group.arm_session(member, member.session_timeout_ms)
    if rebalance:
        records = prepare_rebalance(group, "the last consumer member left")
        assert not records, "a group that was just created has no parked joins"
