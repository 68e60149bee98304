"""Fast replay of a log with millions of offset records.

A compiled decoder reads the common versions of keys and values, which nearly all offset records have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore_ext.group.offsets import OffsetAndMetadata, OffsetDecoder

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore_ext.batch.run import Run


class _Target:
    """The callbacks for `OffsetDecoder`, which decodes offset records in the common versions.

    The decoder adds these offsets directly to the offset store, and passes all other records to `other`.
    """

    __slots__ = ("shard", "unknown")

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard
        self.unknown = 0

    def partitions_of(self, group_id: str, topic: str) -> dict[int, OffsetAndMetadata]:
        """Returns the offsets of a group and topic, to which the decoder adds offsets.

        Creates a simple group if the group does not exist, as `replay_commit` does.
        """
        shard = self.shard
        group = shard.groups.get(group_id)
        if group is None:
            group = shard.get_or_create_group(group_id)
        return shard.offsets.partitions_of(group.group_id, topic)

    def other(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Replays a record that the compiled decoder leaves to the codec, for example a tombstone.

        Counts the record if its type is unknown.
        """
        typed = self.shard.decode(key, value)
        if typed is None:
            self.unknown += 1
        else:
            self.shard.replay(offset, -1, *typed)


def replay_run(shard: GroupShard, run: Run, start: int, stop: int, from_offset: int) -> int:
    """Applies the records of non-transactional batches; returns the number of records of unknown type."""
    target = _Target(shard)
    added = OffsetDecoder().replay(run, start, stop, from_offset, target.partitions_of, target.other)
    # `+=`, because tombstones among the records have already changed the count
    shard.offsets.offset_count += added
    return target.unknown
