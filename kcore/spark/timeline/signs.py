"""Signs of life: when which partition was committed last, and thereby when its owner was alive."""

from __future__ import annotations

from collections.abc import Iterable

from kcore.spark.timeline.rebalance import Part


class Signs:
    """The last commit of each partition that a group committed, by topic name and, where records say it, topic id."""

    __slots__ = ("_at_ms", "_ids")

    def __init__(self) -> None:
        self._at_ms: dict[Part, int] = {}
        self._ids: dict[Part, str] = {}

    def committed(self, topic: str, topic_id: str | None, partition: int, timestamp_ms: int) -> None:
        """A commit was written."""
        self._at_ms[topic, partition] = timestamp_ms
        if topic_id is not None:
            self._at_ms[topic_id, partition] = timestamp_ms
            self._ids[topic, partition] = topic_id

    def deleted(self, topic: str, partition: int) -> None:
        """An offset was deleted or expired: what was known of it goes too."""
        self._at_ms.pop((topic, partition), None)
        topic_id = self._ids.pop((topic, partition), None)
        if topic_id is not None:
            self._at_ms.pop((topic_id, partition), None)

    def newest(self, parts: Iterable[Part], since_ms: int) -> int | None:
        """When any of the partitions was committed last, None if not since then.

        Args:
            parts: what a member has had since `since_ms`: who commits these is that member.
            since_ms: earlier commits were others'.
        """
        newest = max((self._at_ms.get(part, -1) for part in parts), default=-1)
        return newest if newest >= max(0, since_ms) else None
