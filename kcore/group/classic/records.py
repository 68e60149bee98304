"""The records of classic groups, as pure functions (`GroupMetadata`, type 2 of `__consumer_offsets`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup

VALUE_VERSION: Final = 3
"""The version of written records, as in Kafka since 2.3. Replay also reads version 4."""

_FIXED_BYTES: Final = 160  # at most: batch and record overhead, versions, counts, numbers
_MEMBER_FIXED_BYTES: Final = 26  # lengths and timeouts of one member


def group_created(group_id: str, wall_ms: int) -> Record:
    """Returns the record of a new group. The first JoinGroup writes this record, even if it is refused."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=wall_ms, members=()
    )
    return Record(GroupMetadataKey(group=group_id), value, VALUE_VERSION)


def group_emptied(group: ClassicGroup, wall_ms: int) -> Record:
    """Returns the record of the next generation, without members. The protocol type is kept."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id + 1,
        protocol=None,
        leader=None,
        current_state_timestamp=wall_ms,
        members=(),
    )
    return Record(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def group_snapshot(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> Record:
    """Returns the record of the current generation with all members.

    Args:
        group: the group; it has members and a protocol.
        assignments: the assignments from the leader, by member id. A member without an entry receives an empty
            assignment. If this argument is None, the members keep their assignments.
    """
    name = group.protocol_name
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(name),
            assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return Record(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def group_tombstone(group_id: str) -> Record:
    """Returns the record that deletes the group."""
    return Record(GroupMetadataKey(group=group_id), None)


def size_bound_bytes(record: Record) -> int:
    """Returns an upper bound of the size of a group snapshot in a batch of its own, without encoding it.

    Before any member receives its assignment, the caller must refuse a record that is too large. For ASCII text, the
    bound exceeds the real size by only a few bytes per member.
    """
    key, value = record.key, record.value
    assert isinstance(key, GroupMetadataKey)
    assert isinstance(value, GroupMetadataValue)
    size_bytes = _FIXED_BYTES + _text_bytes(key.group) + _text_bytes(value.protocol_type)
    size_bytes += _text_bytes(value.protocol) + _text_bytes(value.leader)
    for member in value.members:
        size_bytes += (
            _MEMBER_FIXED_BYTES
            + len(member.subscription)
            + len(member.assignment)
            + _text_bytes(member.member_id)
            + _text_bytes(member.group_instance_id)
            + _text_bytes(member.client_id)
            + _text_bytes(member.client_host)
        )
    return size_bytes


def _text_bytes(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
