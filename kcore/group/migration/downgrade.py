"""A consumer group becomes a classic group: its last consumer member went, and classic members stay.

The group epoch becomes the generation, what each member was to have becomes its assignment. After a member went they
rebalance at once, and one of them leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.rebalance import prepare_rebalance
from kcore.group.classic.records import VALUE_VERSION
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


def downgrade_after(group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[Record] | None:
    """The records that make a classic group of what stays when members leave; None if it stays as it is."""
    if not _only_classic_stay(group, leaving, joining=0):
        return None
    gone = {member.member_id for member in leaving}
    staying = {member_id: member.metadata for member_id, member in group.members.items() if member_id not in gone}
    records = group_records.group_tombstones(group)
    records.append(_classic_group(group, group.group_epoch, staying, next(iter(staying)), {}, rebalance=True))
    return records


def downgrade_by_replacement(change: MemberChange) -> list[Record] | None:
    """The records that make a classic group of one whose last consumer member is replaced by a classic one.

    The member comes back under its instance id; nobody else notices, unless a target was due.
    """
    group, old = change.group, change.replaced
    if old is None or old.is_classic or not _only_classic_stay(group, [old], joining=1):
        return None
    staying = {member_id: member.metadata for member_id, member in group.members.items() if member_id != old.member_id}
    leader_id = next(iter(staying), change.member_id)
    staying[change.member_id] = change.metadata
    records = group_records.group_tombstones(group, (old.member_id, change.member_id))
    due = change.group_epoch > group.assignment_epoch
    targets = {change.member_id: old.member_id}
    records.append(_classic_group(group, change.group_epoch, staying, leader_id, targets, rebalance=due))
    return records


def _only_classic_stay(group: ConsumerGroup, leaving: Sequence[ConsumerMember], joining: int) -> bool:
    staying = len(group.members) - len(leaving)
    classic = group.subscriptions.classic_members - sum(member.is_classic for member in leaving)
    if classic != staying or staying + joining == 0:
        return False
    config = group.shard.config
    if not migration_policy(config.group_consumer_migration_policy).downgrade:
        return False
    return staying + joining <= config.group_max_size


def _classic_group(
    group: ConsumerGroup,
    generation_id: int,
    staying: Mapping[str, MemberMetadata],
    leader_id: str,
    targets: Mapping[str, str],
    *,
    rebalance: bool,
) -> Record:
    """The record of the classic group, with what follows in the living one.

    Args:
        group: the consumer group.
        generation_id: the group epoch.
        staying: the members, all classic, by id.
        leader_id: who leads.
        targets: whose target a member has, where it is not its own.
        rebalance: whether a join phase begins at once.
    """
    protocol = _choose_protocol(staying)
    members = []
    for member_id, metadata in staying.items():
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

    def take_over(shard: GroupShard) -> None:
        _take_over(shard, group_id, staying, rebalance)

    return Record(GroupMetadataKey(group=group_id), LiveValue(value, take_over), VALUE_VERSION)


def _choose_protocol(staying: Mapping[str, MemberMetadata]) -> str:
    """The protocol that all members support and most like best; the first member's order decides between equals."""
    offered = [metadata.classic.protocols for metadata in staying.values() if metadata.classic is not None]
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


def _take_over(shard: GroupShard, group_id: str, staying: Mapping[str, MemberMetadata], rebalance: bool) -> None:
    """What the record does not say: all protocols of each member, sessions, and the rebalance."""
    group = shard.groups[group_id]
    assert isinstance(group, ClassicGroup), group
    for member_id, metadata in staying.items():
        member = group.members[member_id]
        if metadata.classic is not None:
            group.set_protocols(member, metadata.classic.protocols)
        group.arm_session(member, member.session_timeout_ms)
    if rebalance:
        records = prepare_rebalance(group, "the last consumer member went")
        assert not records, "nobody waits in a group that was none a moment ago"
