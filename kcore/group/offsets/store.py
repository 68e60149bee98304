"""The offsets of one group shard: committed offsets, and pending offsets by producer.

Offsets are keyed by group, topic *name* and partition, as in Kafka; the topic id is an attribute. An offset committed
in a transaction is *pending* under its producer id until the transaction's marker (KIP-98). A commit marker makes the
pending offset the group's *committed* offset, unless a later record has already replaced it. An abort marker removes
the pending offset.

Only replay calls the methods that change durable state; requests only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kcore_ext.group.offset_fetch import OffsetCounters, OffsetTables
from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.group.pending_offsets import hold, release
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore_ext.group.offset_block import OffsetBlock

Partitions = dict[int, OffsetAndMetadata]
Topics = dict[str, Partitions]

NO_TOPICS: Mapping[str, Mapping[int, OffsetAndMetadata]] = MappingProxyType({})
NO_PARTITIONS: Mapping[int, OffsetAndMetadata] = MappingProxyType({})


class OffsetStore(OffsetCounters):
    """All offsets of a shard.

    A node may store millions of offsets, so their size matters. An offset is one compiled object without Python
    integers, in a dictionary of its topic's partitions. All offsets share the strings of groups and topics.

    Attributes:
        expirations: offsets that expired since the load (`offset-expiration-count`).
        deletions: offsets that OffsetDelete removed since the load (`offset-deletion-count`).
    """

    __slots__ = ("_groups", "_open", "_pending", "deletions", "expirations")

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}  # producer id -> group, topic, partition
        self._open: dict[str, dict[str, dict[int, set[int]]]] = {}  # group, topic, partition -> producers
        self.expirations = 0
        self.deletions = 0

    # ---- committed offsets

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, OffsetAndMetadata]]:
        """Returns a group's committed offsets by topic and partition; empty if it has none. Callers must not change
        them."""
        return self._groups.get(group_id, NO_TOPICS)

    def tables(self, groups: dict[str, Any], now: Now, metadata_max_bytes: int) -> OffsetTables:
        """Returns the parts of the store and of its shard that compiled code uses, as one object.

        Args:
            groups: the shard's groups by id.
            now: the time of the current round.
            metadata_max_bytes: the maximum size of an offset's metadata.
        """
        return OffsetTables(groups, self._groups, self._open, self, now, metadata_max_bytes)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Returns the committed offset of a partition, None if there is none."""
        return self._groups.get(group_id, NO_TOPICS).get(topic, NO_PARTITIONS).get(partition)

    def count(self, group_id: str) -> int:
        """Returns the number of a group's committed offsets."""
        return sum(map(len, self._groups.get(group_id, NO_TOPICS).values()))

    def groups(self) -> Iterator[str]:
        """Yields every group that has committed or pending offsets, once each."""
        yield from self._groups
        for group_id in self._open:
            if group_id not in self._groups:
                yield group_id

    # ---- pending offsets

    def pending_topics(self, group_id: str) -> Mapping[str, Mapping[int, set[int]]]:
        """Returns the ids of producers with pending offsets of a group, by topic and partition."""
        return self._open.get(group_id, {})

    def pending(self, producer_id: int, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Returns a producer's pending offset of a partition, None if there is none."""
        return self._pending.get(producer_id, {}).get(group_id, NO_TOPICS).get(topic, NO_PARTITIONS).get(partition)

    def pending_offsets(self, group_id: str) -> Iterator[tuple[str, int, int, OffsetAndMetadata]]:
        """Yields all pending offsets of a group as (topic, partition, producer id, offset).

        The offsets of a partition are ordered by producer id.
        """
        for topic, partitions in self.pending_topics(group_id).items():
            for partition, producer_ids in partitions.items():
                for producer_id in sorted(producer_ids):
                    offset = self.pending(producer_id, group_id, topic, partition)
                    assert offset is not None, "a producer in `_open` has a pending offset"
                    yield topic, partition, producer_id, offset

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Returns True if an open transaction has a pending offset of a partition, so that the group's offset is not
        stable."""
        topics = self._open.get(group_id)
        return topics is not None and partition in topics.get(topic, ())

    def group_has_pending(self, group_id: str) -> bool:
        """Returns True if an open transaction has any pending offset of a group."""
        return group_id in self._open

    # ---- replay

    def put(self, producer_id: int, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata) -> None:
        """Stores an offset: as committed if `producer_id` is -1, else as pending in the transaction of the producer.

        A later pending offset of the same producer and partition replaces an earlier pending offset.
        """
        if producer_id >= 0:
            groups = self._pending.get(producer_id)
            if groups is None:
                groups = self._pending[producer_id] = {}
            _nested(groups, group_id, topic)[partition] = offset
            _nested_sets(self._open, group_id, topic, partition).add(producer_id)
            return
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[shared_text(topic)] = {}
        if partition not in partitions:
            self.offset_count += 1
        partitions[partition] = offset

    def put_pending(self, producer_id: int, group_id: str, first_offset: int, block: OffsetBlock[Any]) -> None:
        """Stores each offset of a block as pending in a producer's transaction."""
        hold(self._pending, self._open, producer_id, group_id, block, first_offset)

    def partitions_of(self, group_id: str, topic: str) -> Partitions:
        """Returns a group's committed offsets of a topic, to which a load adds offsets.

        The load adds the number of new offsets to `offset_count`. The result is valid until another record is
        replayed, because the replay may remove an empty dictionary from the store.
        """
        return _nested(self._groups, group_id, topic)

    def topics_of(self, group_id: str) -> Topics:
        """Returns a group's committed offsets by topic, to which a load adds offsets.

        The load must follow the rules of `partitions_of`.
        """
        return self._groups.setdefault(group_id, {})

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Applies a tombstone: removes the committed offset and all pending offsets of a partition.

        Without pending offsets, a later commit marker cannot restore the offset.
        """
        topics = self._groups.get(group_id)
        if topics is not None and _discard(topics, topic, partition):
            self.offset_count -= 1
            if not topics:
                del self._groups[group_id]
        open_topics = self._open.get(group_id)
        if open_topics is None or partition not in open_topics.get(topic, ()):
            return
        for producer_id in open_topics[topic][partition]:
            self._drop_pending(producer_id, group_id, topic, partition)
        _discard(open_topics, topic, partition)
        if not open_topics:
            del self._open[group_id]

    def complete(self, producer_id: int, commit: bool) -> None:
        """Ends a transaction: its pending offsets become committed if `commit` is True, and are removed otherwise.

        The order of the offset records decides, not the order of the markers, because compaction keeps the last record
        of a key. Therefore a pending offset is removed if its record precedes the record of the committed offset.
        The committed offset then comes from a later commit without a transaction, or from a transaction that ended
        earlier.
        """
        self.offset_count += release(self._pending, self._open, self._groups, producer_id, commit)

    def _drop_pending(self, producer_id: int, group_id: str, topic: str, partition: int) -> None:
        groups = self._pending[producer_id]
        topics = groups[group_id]
        dropped = _discard(topics, topic, partition)
        assert dropped, f"producer {producer_id} has no pending offset of {group_id}/{topic}-{partition}"
        if not topics:
            del groups[group_id]
            if not groups:
                del self._pending[producer_id]


def _nested(groups: dict[str, Topics], group_id: str, topic: str) -> Partitions:
    return groups.setdefault(group_id, {}).setdefault(shared_text(topic), {})


def _nested_sets(
    groups: dict[str, dict[str, dict[int, set[int]]]], group_id: str, topic: str, partition: int
) -> set[int]:
    return groups.setdefault(group_id, {}).setdefault(topic, {}).setdefault(partition, set())


def _discard(topics: dict[str, dict[int, Any]], topic: str, partition: int) -> bool:
    """Removes a partition from a group's topics, and the topic if it has no further partitions.

    Returns True if the partition existed.
    """
    partitions = topics.get(topic)
    if partitions is None or partitions.pop(partition, None) is None:
        return False
    if not partitions:
        del topics[topic]
    return True
