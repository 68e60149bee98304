"""Removal of members of share groups, which have left or whose session has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.share import records as share_records

if TYPE_CHECKING:
    from kcore.group.share.group import ShareGroup
    from kcore.group.share.member import ShareMember
    from kcore.runtime.machine import Record


def fence(group: ShareGroup, member: ShareMember) -> list[Record]:
    """Returns the records that remove a member, with a new group epoch. Later heartbeats reassign its partitions.

    The partition leaders end the member's share session.
    """
    names = group.names
    topics = [name for name, count in names.items() if count > (name in member.metadata.names)]
    records = share_records.member_tombstones(group.group_id, member.member_id)
    metadata_hash = group.shard.consumer.metadata.hash_of(topics)
    records.append(share_records.group_epoch(group.group_id, group.group_epoch + 1, metadata_hash))
    group.shard.share.on_left(group.group_id, member.member_id, len(group.members) == 1)
    return records
