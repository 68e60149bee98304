"""The limit on the memory for the metadata of classic members, which is checked before a join stores its metadata.

Kafka has no such bound. A member's metadata may be as long as a request, and its session may last half an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.group.classic.member import Protocols

MAX_GROUP_SHARE: Final = 8
"""The divisor of the node's limit that gives the limit of one group."""
SMALL_GROUP_BYTES: Final = 65_536
"""A group below this size may grow even if the node's limit is exceeded, so that small groups keep working."""


FEW_PROTOCOLS: Final = 4
"""Number of protocols above which each further one counts `PROTOCOL_BYTES`; clients have one or two."""
PROTOCOL_BYTES: Final = 256
"""The memory of an empty protocol. It also bounds the time to count all protocols of a group."""


def size_of(protocols: Protocols) -> int:
    """Returns the size of a member's metadata for all its protocols, in bytes."""
    size_bytes = sum(len(name) + len(metadata) for name, metadata in protocols)
    return size_bytes + PROTOCOL_BYTES * max(0, len(protocols) - FEW_PROTOCOLS)


def has_room(group: ClassicGroup, member_id: str, protocols: Protocols) -> bool:
    """Returns True if the limit `kcore.max.group.metadata.bytes` allows a member's metadata.

    Args:
        group: the group.
        member_id: the member's id, which may be new.
        protocols: the metadata with which it joins.
    """
    limit = group.shard.config.kcore_max_group_metadata_bytes
    if limit < 0:
        return True
    member = group.members.get(member_id)
    added = size_of(protocols) - (0 if member is None else size_of(member.protocols))
    if added <= 0:
        return True
    size = group.metadata_bytes + added
    if size > limit // MAX_GROUP_SHARE:
        return False
    return size <= SMALL_GROUP_BYTES or group.shard.meters.metadata_bytes + added <= limit
