"""The limit on the records of one decision of a group: max.message.bytes of `__consumer_offsets`, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.shard import GroupShard
    from kcore.runtime.shards import Shards


class GroupRecordLimits(MetadataListener):
    """A metadata listener that passes a changed limit on records to all group shards.

    Args:
        groups: the group shards.
        limit: returns the current limit, in bytes.
    """

    __slots__ = ("_groups", "_limit")

    def __init__(self, groups: Shards[GroupShard], limit: Callable[[], int]) -> None:
        self._groups = groups
        self._limit = limit

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Applies the current limit to all group shards, because a setting of the topic or the broker may define it."""
        limit = self._limit()
        for shard in self._groups:
            if shard.max_batch_bytes != limit:
                shard.max_batch_bytes = limit
                shard.machine.max_record_bytes = limit
