"""Topic metadata for groups: existing topics, hashes that detect changes, and the version of the last topic creation.

A group stores one hash of all its subscribed topics. kcore computes the same hash as Kafka (KIP-1101). Therefore a
group that kcore loads from the log of a Kafka broker does not appear changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from kcore.runtime.topics import TopicImage, TopicInfo

_MAGIC: Final = b"\x00"  # the version of the hash's input
_INT64_SIGN: Final = 1 << 63

MANY_NAMES: Final = 10_000
"""Minimum number of names for which `in_order` filters the sorted list of all topics. It sorts fewer names itself."""


def topic_hash(topic: TopicInfo, racks: Iterable[str] = ()) -> int:
    """Returns the hash of one topic: its id, its name, its partitions, and the racks of each partition.

    Args:
        topic: the topic with its id, name and partitions.
        racks: the racks that hold replicas; the function assumes that every partition has a replica in each of them.

    Returns:
        A signed 64-bit number.
    """
    most, least = struct.unpack(">qq", topic.topic_id)
    parts = [_MAGIC, struct.pack("<qq", most, least), _text(topic.name), struct.pack("<i", topic.partitions)]
    of_partition = b"".join(struct.pack("<i", len(rack)) + _text(rack) for rack in sorted(racks))
    parts += [struct.pack("<i", partition) + of_partition for partition in range(topic.partitions)]
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def group_hash(hashes: Iterable[int]) -> int:
    """Combines the hashes of a group's topics into one hash; returns 0 if there are no topics.

    Args:
        hashes: the hash of each topic, ordered by topic name.
    """
    values = tuple(hashes)
    data = struct.pack(f"<{len(values)}q", *values)
    return _signed(xxh3_64_intdigest(data)) if data else 0


def _text(text: str) -> bytes:
    """Returns the hash input of a text: its UTF-16 units and their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + struct.pack("<i", len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _INT64_SIGN else value


class TopicMetadata:
    """The topics of the cluster with their hashes; one object for all shards of a node.

    Args:
        topics: all topics of the cluster.
        version: returns the current version of the metadata, which grows with every change. A restart does not reset
            the version.
        rack: the rack of this node, None if unset.

    Attributes:
        topics: all topics of the cluster.
        created_version: the version of the last topic creation. A pattern that was resolved in an older version must be
            resolved again.
        changes: the number of changes of topics since the start of this node. A decision that changes a topic increases
            this number at once; the version grows only after the commit of the decision.
    """

    __slots__ = ("_created", "_hashes", "_order", "_racks", "changes", "created_version", "topics", "version")

    def __init__(self, topics: TopicImage, version: Callable[[], int], rack: str | None = None) -> None:
        self.topics = topics
        self.version = version
        self.created_version = version()
        self.changes = 0
        self._racks = (rack,) if rack else ()
        self._hashes: dict[str, int] = {}
        self._order: list[str] = []
        # names that were added after `_order` was built; None: `_order` is not built yet
        self._created: list[str] | None = None

    def created(self, name: str) -> None:
        """Registers the creation of a topic, which becomes visible in the next version of the metadata."""
        self.changes += 1
        self._hashes.pop(name, None)
        if self._created is not None:
            self._created.append(name)
        self.created_version = self.version() + 1

    def loaded(self) -> None:
        """Ends the initial load of the topics, which is not a creation of topics.

        Sets `created_version` to the current version, so that patterns that were resolved in the current version need
        not be resolved again.
        """
        self.created_version = self.version()

    def changed(self, name: str) -> None:
        """Discards the cached hash of a topic to which partitions were added, or which was deleted."""
        self.changes += 1
        self._hashes.pop(name, None)

    def hash_of(self, names: Iterable[str]) -> int:
        """Returns the hash of the topics of these names; ignores topics that do not exist."""
        hashes, by_name = self._hashes, self.topics.by_name
        existing: list[str] = []
        for name in names:
            if name not in hashes:
                topic = by_name(name)
                if topic is None:
                    continue
                hashes[name] = topic_hash(topic, self._racks)
            existing.append(name)
        if len(existing) >= MANY_NAMES:
            existing = self.in_order(frozenset(existing))
        else:
            existing.sort()
        return group_hash([hashes[name] for name in existing])

    def in_order(self, names: AbstractSet[str]) -> list[str]:
        """Returns the names in sorted order, which `group_hash` requires.

        For `MANY_NAMES` or more names, the time is linear in the number of all topics.
        """
        if len(names) < MANY_NAMES:
            return sorted(names)
        ordered = [name for name in self._all_in_order() if name in names]
        if len(ordered) < len(names):
            ordered += names - frozenset(ordered)
            ordered.sort()  # mostly one ascending run, which is sorted in linear time
        return ordered

    def _all_in_order(self) -> list[str]:
        """Returns the names of all topics in sorted order. The result may contain names of deleted topics."""
        created = self._created
        if created is None:
            self._order = sorted(topic.name for topic in self.topics.all())
        elif created:
            by_name = self.topics.by_name
            names = [*self._order, *sorted(created)]
            names.sort()  # two ascending runs, which are merged in linear time
            self._order = [name for name in dict.fromkeys(names) if by_name(name) is not None]
        self._created = []
        return self._order
