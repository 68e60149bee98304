"""The time of each partition's last commit. The owner of the partition was alive at this time."""

from __future__ import annotations

from collections.abc import Iterable

from kcore.protocol.topic_partition import PartitionTuple


class LastCommits:
    """The last commit of each partition of a group, by topic name and, if records contain it, topic id."""

    __slots__ = ("_at_ms", "_ids")

    def __init__(self) -> None:
        self._at_ms: dict[PartitionTuple, int] = {}
        self._ids: dict[PartitionTuple, str] = {}

    def committed(self, topic: str, topic_id: str | None, partition: int, timestamp_ms: int) -> None:
        """Records the time of a commit."""
        self._at_ms[topic, partition] = timestamp_ms
        if topic_id is not None:
            self._at_ms[topic_id, partition] = timestamp_ms
            self._ids[topic, partition] = topic_id

    def deleted(self, topic: str, partition: int) -> None:
        """Drops the commit of an offset that was deleted or expired."""
        self._at_ms.pop((topic, partition), None)
        topic_id = self._ids.pop((topic, partition), None)
        if topic_id is not None:
            self._at_ms.pop((topic_id, partition), None)

    def newest(self, parts: Iterable[PartitionTuple], since_ms: int) -> int | None:
        """Returns the time of the newest commit to any of the partitions, in ms since the epoch; None if there is none
        since `since_ms`.

        Args:
            parts: the partitions that one member has owned since `since_ms`. So this member made the commits to them.
            since_ms: the time before which commits are ignored.
        """
        newest = max((self._at_ms.get(part, -1) for part in parts), default=-1)
        return newest if newest >= max(0, since_ms) else None
