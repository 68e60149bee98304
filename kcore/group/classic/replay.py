"""Replay of classic groups' records: the only code that changes their durable state.

After a decision, a record is applied to the group for which it was decided. This group has soft state: timers, parked
requests, and all protocols of each member. During recovery, a record is applied to the state that the previous records
left. In both cases the group matches the record afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.member import Member
from kcore.group.classic.states import COMPLETING, EMPTY, PREPARING, STABLE
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard

UNKNOWN_TIMEOUT: Final = -1  # the rebalance timeout in records before version 1


def replay_group_metadata(
    shard: GroupShard, offset: int, producer_id: int, key: GroupMetadataKey, value: GroupMetadataValue | None
) -> None:
    """Applies a generation of a classic group, or its deletion.

    Args:
        shard: the state to change.
        offset: the record's offset in the log; not used.
        producer_id: not used.
        key: names the group.
        value: the generation; None deletes the group.
    """
    group = shard.groups.get(key.group)
    if value is None:
        if type(group) is ClassicGroup:
            group.on_unloaded()
            del shard.groups[key.group]
        return
    if type(group) is not ClassicGroup:
        if group is not None:
            group.on_replaced()
        group = shard.groups[key.group] = ClassicGroup(shard, key.group)
    install(group, value)


def install(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Makes the group match a record."""
    if group.state is PREPARING and value.generation == group.generation_id:
        # The record creates the group. The same decision contains the first join, which has already begun the next
        # generation.
        assert not value.members, f"{group!r}: a record of a past generation has no members"
        return
    group.protocol_type = value.protocol_type
    group.generation_id = value.generation
    group.protocol_name = value.protocol
    recorded = {metadata.member_id for metadata in value.members}
    for member in [member for member in group.members.values() if member.member_id not in recorded]:
        group.forget_member(member)
    for metadata in value.members:
        _install_member(group, metadata, value.protocol or "")
    group.leader_id = value.leader if value.leader in group.members else next(iter(group.members), None)
    if group.state is not COMPLETING:  # live, the end of the join phase has computed the subscribed topics
        group.find_subscribed_topics()
    state = STABLE if value.members else EMPTY
    group.transition(state, "replayed a record", timestamp_ms=value.current_state_timestamp, recorded=True)


def _install_member(group: ClassicGroup, metadata: MemberMetadata, protocol_name: str) -> None:
    rebalance_timeout_ms = metadata.rebalance_timeout
    if rebalance_timeout_ms == UNKNOWN_TIMEOUT:
        rebalance_timeout_ms = metadata.session_timeout
    member = group.members.get(metadata.member_id)
    if member is None:
        member = Member(
            group,
            metadata.member_id,
            metadata.group_instance_id,
            shared_text(metadata.client_id),
            shared_text(metadata.client_host),
            rebalance_timeout_ms,
            metadata.session_timeout,
            ((shared_text(protocol_name), metadata.subscription),),
            metadata.assignment,
        )
        group.add_member(member, None)
        return
    member.rebalance_timeout_ms = rebalance_timeout_ms
    member.session_timeout_ms = metadata.session_timeout
    member.assignment = metadata.assignment
    if not _has_protocol(member, protocol_name, metadata.subscription):
        # Only at recovery: live, the record was built from the member's own protocols.
        group.set_protocols(member, ((shared_text(protocol_name), metadata.subscription),))


def _has_protocol(member: Member, protocol_name: str, subscription: bytes) -> bool:
    return any(name == protocol_name and metadata == subscription for name, metadata in member.protocols)


REPLAY: dict[type, Callable[[GroupShard, int, int, Any, Any], None]] = {GroupMetadataKey: replay_group_metadata}
"""Class of a record's key -> function that replays the record, for the records of classic groups."""
