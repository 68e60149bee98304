"""Reports committed offsets that decreased.

The protocol allows a decrease: a coordinator accepts any offset. An administrator can reset offsets only while the
group has no members. Therefore, a decrease in a group without members is probably intended, and the check reports a
decrease only if the group has members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.group.shard import GroupShard
from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey
from kcore.protocol.records.offset_commit import OffsetCommitKey
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.events.event import EventRow
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

OffsetKey = tuple[str, str, int]
"""The key of a committed offset: (group id, topic, partition)."""


class OffsetsDecreased(Check):
    """The check that committed offsets do not decrease in log order. It covers transactional commits, too.

    Args:
        log: the log of a partition of `__consumer_offsets`.
        groups: the replayed state before the checked record: committed offsets, and the members of each group.
    """

    __slots__ = ("_groups", "_pending")

    def __init__(self, log: Log, groups: GroupShard) -> None:
        super().__init__(log)
        self._groups = groups
        self._pending: dict[int, dict[OffsetKey, int]] = {}  # producer id -> timestamps of its transaction's offsets

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {CommitKey: self._see, OffsetCommitKey: self._see, LegacyOffsetCommitKey: self._see}

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._pending.clear()

    def replaced(self, groups: GroupShard) -> None:
        """Replaces the replayed state. After damage, the new state is empty."""
        self._groups = groups

    def _see(self, row: EventRow, key: Any, value: Any) -> None:
        if value is None:
            return
        if row.transactional:
            self._pending.setdefault(row.producer_id, {})[key.group, key.topic, key.partition] = row.timestamp_ms
            return
        before = self._groups.offsets.get(key.group, key.topic, key.partition)
        offset = value.committed_offset if type(value) is OffsetAndMetadata else value.offset
        if before is not None and offset < before.committed_offset and _same_topic(before, value):
            self._compare((key.group, key.topic, key.partition), before, offset, row.offset, row.timestamp_ms)

    def marker(self, row: EventRow, commit: bool) -> None:
        """Compares the offsets of a committed transaction with the offsets that they replace.

        The comparison uses the order of the offsets' records, regardless of the position of the marker.
        """
        partitions = self._pending.pop(row.producer_id, None)
        if not commit or not partitions:
            return
        offsets = self._groups.offsets
        for key, timestamp_ms in partitions.items():
            before, after = offsets.get(*key), offsets.pending(row.producer_id, *key)
            if before is None or after is None or after.record_offset < before.record_offset:
                continue
            if after.committed_offset < before.committed_offset and _same_topic(before, after):
                self._compare(key, before, after.committed_offset, after.record_offset, timestamp_ms)

    def _compare(self, key: OffsetKey, before: OffsetAndMetadata, offset: int, at: int, timestamp_ms: int) -> None:
        group_id, topic, partition = key
        group = self._groups.groups.get(group_id)
        if group is None or group.is_empty():
            return
        log = self.log
        log.report(
            "offset-decreased",
            [log.at(before.record_offset, before.commit_timestamp_ms), log.at(at, timestamp_ms)],
            f"The committed offset of group {group_id} in {topic}-{partition} fell from "
            f"{before.committed_offset} to {offset} while the group had members.",
            group_id=group_id,
            about=(topic, partition),
        )


def _same_topic(before: OffsetAndMetadata, after: Any) -> bool:
    """Returns True unless the topic ids differ. A topic that was deleted and created again has another id."""
    topic_id = getattr(after, "topic_id", None)
    return topic_id is None or before.belongs_to(bytes(topic_id))
