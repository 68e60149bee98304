"""Steps of replay that consumer, share and streams groups (KIP-848, KIP-932, KIP-1071) have in common.

The records of these groups follow the same rules. Each record creates its group if the group is missing. The tombstone
of a member must follow the tombstones of its assignments. The tombstone of a group must follow those of its members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.group.classic.group import ClassicGroup

if TYPE_CHECKING:
    from typing import TypeVar

    from kcore.group.epoch_group import EpochGroup
    from kcore.group.shard import GroupShard

    G = TypeVar("G", bound=EpochGroup[Any, Any])

NO_EPOCH: Final = -1
"""The epoch of a deleted assignment, until the tombstone of its member or group follows."""


class ReplayError(ValueError):
    """A record contradicts earlier records."""


def find_or_create(shard: GroupShard, group_id: str, kind: type[G]) -> G:
    """Returns the group of a record. Creates a missing group, and replaces a simple group, which has only offsets.

    Raises:
        ReplayError: a group of another type has the id.
    """
    group = shard.groups.get(group_id)
    if isinstance(group, kind):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and not group.protocol_type and group.is_empty()):
        raise ReplayError(f"record of a {kind.group_type.value} group, but {group!r} has the same id")
    if group is not None:
        group.on_replaced()
    created = shard.groups[group_id] = kind(shard, group_id, live=shard.live)
    return created


def find(shard: GroupShard, group_id: str, kind: type[G]) -> G | None:
    """Returns the group that a tombstone names; None if the group is already deleted."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, kind) else None


def put_target(shard: GroupShard, key: Any, kind: type[G], target: Any) -> None:
    """Sets a member's target; None deletes it."""
    group = find(shard, key.group_id, kind) if target is None else find_or_create(shard, key.group_id, kind)
    if group is not None:
        group.put_target(key.member_id, target)


def put_assignment_epoch(shard: GroupShard, key: Any, kind: type[G], value: Any) -> None:
    """Sets the epoch of a complete target assignment; None deletes it.

    Raises:
        ReplayError: the epoch is deleted before the members' targets.
    """
    if value is not None:
        group = find_or_create(shard, key.group_id, kind)
        group.put_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        return
    existing = find(shard, key.group_id, kind)
    if existing is None:
        return
    if existing.targets:
        raise ReplayError(f"the assignment epoch of {existing!r} is deleted before its members' targets")
    existing.put_assignment_epoch(NO_EPOCH, 0)


def delete_current(shard: GroupShard, key: Any, kind: type[G], no_member: Any) -> None:
    """Replaces a member's current assignment by `no_member` until the tombstone of the member follows."""
    group = find(shard, key.group_id, kind)
    member = None if group is None else group.members.get(key.member_id)
    if group is not None and member is not None:
        group.put_current(member, no_member)


def delete_member(shard: GroupShard, key: Any, kind: type[G]) -> None:
    """Deletes a member.

    Raises:
        ReplayError: the member's current assignment or its target still exists.
    """
    group = find(shard, key.group_id, kind)
    member = None if group is None else group.members.get(key.member_id)
    if group is None or member is None:
        return
    if member.current.member_epoch != NO_EPOCH or key.member_id in group.targets:
        raise ReplayError(f"{member!r} is deleted before its current assignment and target")
    group.remove(member)


def check_deletable(group: EpochGroup[Any, Any]) -> None:
    """Checks that the members, the targets and the assignment epoch of a group are deleted before the group.

    Raises:
        ReplayError: a member, a target or the assignment epoch still exists.
    """
    if group.members or group.targets or group.assignment_epoch != NO_EPOCH:
        raise ReplayError(f"{group!r} is deleted before its members, targets and assignment epoch")
