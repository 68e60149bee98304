"""The limit on the memory for members' metadata. A decision checks the limit before it stores metadata.

Kafka has no such limit. A member's metadata may be as long as a request, and the member's session may last half an
hour.

Members with equal subscriptions share one set of names, which counts once. The matches of patterns do not count,
because they name existing topics. Groups that a shard loads from its log count as well, and may exceed the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcore.group.group import Group

MAX_GROUP_SHARE: Final = 8
"""The limit for all groups of a node, divided by this number, is the limit for one group."""
SMALL_GROUP_BYTES: Final = 65_536
"""Size in bytes up to which a group may grow even if the node has reached its limit.

It keeps small groups working.
"""

FEW_PROTOCOLS: Final = 4
"""Number of a member's protocols of which only the texts count, in bytes.

Each further protocol counts with `PROTOCOL_BYTES` and its texts.

Clients usually have one or two protocols.
"""
PROTOCOL_BYTES: Final = 256
"""The memory of a protocol without its texts, in bytes.

Without it, a group could have any number of protocols with short texts, and counting them would take long.
"""
NAME_BYTES: Final = 200
"""The memory of a topic name besides its characters, in bytes.

The name is in the set of a subscription and in the assignor's set.
"""
TOPIC_BYTES: Final = 384
"""The memory of a topic to which members of a group subscribe, in bytes.

It consists of the group's counter of subscribers, and of an entry in the shard's table of groups by topic.
"""


def protocols_bytes(protocols: tuple[tuple[str, bytes], ...]) -> int:
    """Returns the size of the metadata for all protocols of a classic member, in bytes."""
    size_bytes = 0
    for name, metadata in protocols:  # a generator would take a microsecond, and each join calls this
        size_bytes += len(name) + len(metadata)
    if len(protocols) > FEW_PROTOCOLS:
        size_bytes += PROTOCOL_BYTES * (len(protocols) - FEW_PROTOCOLS)
    return size_bytes


def texts_bytes(*texts: str | None) -> int:
    """Returns the size of the texts of a member's metadata, in bytes; None counts as 0."""
    return sum(len(text) for text in texts if text)


def has_room(group: Group, growth: int) -> bool:
    """Returns True if the limit `kcore.max.group.metadata.bytes` allows a group's metadata to grow.

    Args:
        group: the group. A tentative group, which its shard does not contain yet, may replace another group with the
            same id.
        growth: the growth, in bytes; metadata may always shrink.
    """
    shard = group.shard
    limit = shard.config.kcore_max_group_metadata_bytes
    if limit < 0 or growth <= 0:
        return True
    size_bytes = group.metadata_bytes + growth
    if size_bytes > limit // MAX_GROUP_SHARE:
        return False
    registered = shard.groups.get(group.group_id)
    counted_bytes = 0 if registered is None else registered.metadata_bytes
    return size_bytes <= SMALL_GROUP_BYTES or shard.meters.metadata_bytes - counted_bytes + size_bytes <= limit


def check_room(group: Group, growth: int) -> None:
    """Refuses the metadata of a member, or a topology, if the group or the node would then exceed its limit.

    Args:
        group: the group. A tentative group, which its shard does not contain yet, may replace another group with the
            same id.
        growth: the growth of the group's metadata, in bytes.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED.
    """
    if not has_room(group, growth):
        limit = group.shard.config.kcore_max_group_metadata_bytes
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the metadata of the members of {group.group_id} would take {group.metadata_bytes + growth} bytes; the "
            f"maximum is {limit // MAX_GROUP_SHARE} bytes for one group, and {limit} bytes for all groups "
            "(kcore.max.group.metadata.bytes)",
        )


class NameSets:
    """The different sets of names to which the members of a group subscribe.

    Most members of a group have equal subscriptions. They share one set, which takes memory once.

    Attributes:
        size_bytes: the memory of all sets for the metadata limit, in bytes.
    """

    __slots__ = ("_sets", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sets: dict[frozenset[str], tuple[frozenset[str], int]] = {}  # a set -> the same object, its members

    def shared(self, names: frozenset[str]) -> frozenset[str]:
        """Returns the stored set that equals `names`; returns `names` itself if there is none."""
        entry = self._sets.get(names)
        return names if entry is None else entry[0]

    def change(self, before: frozenset[str], after: frozenset[str]) -> None:
        """Replaces the topic names of a member. `before` is empty for a new member, `after` for a removed one."""
        sets = self._sets
        if after:
            entry = sets.get(after)
            if entry is None:
                sets[after] = (after, 1)
                self.size_bytes += _set_bytes(after)
            else:
                sets[after] = (entry[0], entry[1] + 1)
        if before:
            kept, members = sets[before]
            if members == 1:
                del sets[before]
                self.size_bytes -= _set_bytes(before)
            else:
                sets[before] = (kept, members - 1)

    def growth(self, named: Mapping[str, int], before: frozenset[str], after: frozenset[str]) -> int:
        """Returns the number of bytes by which the group's memory grows if a member replaces its names.

        Args:
            named: for each topic name, the number of members that subscribe to it.
            before: the current names of the member.
            after: the new names of the member.
        """
        if before is after or before == after:
            return 0
        added = sum(name not in named for name in after)
        removed = sum(named[name] == 1 for name in before if name not in after)
        growth = TOPIC_BYTES * (added - removed)
        if after and after not in self._sets:
            growth += _set_bytes(after)
        if before and self._sets[before][1] == 1:
            growth -= _set_bytes(before)
        return growth


def _set_bytes(names: frozenset[str]) -> int:
    return sum(map(len, names)) + NAME_BYTES * len(names)
