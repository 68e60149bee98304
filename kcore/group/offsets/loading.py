"""Replay of many batches of a log at once: a log may have millions of offsets, nearly all of them in the same form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore_ext.group.offsets import OffsetAndMetadata, OffsetDecoder

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore_ext.batch.run import Run


class _Target:
    """The target of replayed records: the store gets offsets in the common format, the shard gets other records."""

    __slots__ = ("shard", "unknown")

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard
        self.unknown = 0

    def partitions_of(self, group_id: str, topic: str) -> dict[int, OffsetAndMetadata]:
        """Returns the offsets of a group and topic; an unknown group becomes a simple group, as in `replay_commit`."""
        shard = self.shard
        group = shard.groups.get(group_id)
        if group is None:
            group = shard.get_or_create_group(group_id)
        return shard.offsets.partitions_of(group.group_id, topic)

    def other(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Replays a record that is not an offset in the common form."""
        typed = self.shard.decode(key, value)
        if typed is None:
            self.unknown += 1
        else:
            self.shard.replay(offset, -1, *typed)


def replay_run(shard: GroupShard, run: Run, start: int, stop: int, from_offset: int) -> int:
    """Applies the records of batches that belong to no transaction; see `RunReplay` for the decoding."""
    target = _Target(shard)
    added = OffsetDecoder().replay(run, start, stop, from_offset, target.partitions_of, target.other)
    # `+=`, because tombstones among the records have already changed the count
    shard.offsets.offset_count += added
    return target.unknown
