"""Makes a restore plan from the offsets committed as of a moment and the current state of a target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kcore.protocol.topic_partition import TopicPartition
from kcore.spark.restore.plan import COMPACTED, DAMAGED, REFUSE, SET, SKIP, UNCHECKED, WHOLE, PlanRow, sorted_rows
from kcore.spark.restore.target import HELD_OPEN, NO_LOG, Committed, Log, TargetState


class CommittedAsOf(NamedTuple):
    """One committed offset as of the moment of a restore plan, as far as the log has the record of the commit.

    Attributes:
        group: the group id.
        topic: the name of the topic.
        partition: the number of the partition.
        offset: the committed offset; None if unknown because of compaction or damage.
        metadata: the metadata that was committed with the offset.
        topic_id: the topic's id at the moment, 32 hexadecimal digits; "" if the record has none.
        history: `WHOLE`, `COMPACTED` or `DAMAGED`.
        pending: True if an open transaction had another offset of the partition.
    """

    group: str
    topic: str
    partition: int
    offset: int | None
    metadata: str = ""
    topic_id: str = ""
    history: str = WHOLE
    pending: bool = False

    @property
    def place(self) -> TopicPartition:
        """The topic partition of the offset."""
        return TopicPartition(self.topic, self.partition)


LOST = "compaction removed the offset committed at that time, if there was one: check the offsets of later moments"
DAMAGE = "parts of the log are missing: the offset committed at that time, if there was one, is unknown"
NOT_COMMITTED = "no offset was committed at that time: the current one stays"
PENDING = "the offset of a transaction that was open at that time is ignored"
OUTLIVED = "the log was compacted since; this record still exists"
MAYBE_OLDER = "parts of the log are missing: a later offset may have been committed"
REMARKS = {COMPACTED: OUTLIVED, DAMAGED: MAYBE_OLDER}
"""History of a log (`COMPACTED` or `DAMAGED`) -> the remark in the plan on an offset whose record still exists."""


def make_rows(
    committed: Iterable[CommittedAsOf], target: TargetState | None, include_same: bool = False
) -> list[PlanRow]:
    """Returns the rows of a plan, ordered by group, topic and partition.

    Args:
        committed: the committed offsets, one per group, topic and partition.
        target: the target to check against; None: none.
        include_same: True to commit offsets again that the target already has, which renews their retention.
    """
    offsets = list(committed)
    rows = [_row(offset, target, include_same) for offset in offsets]
    if target is not None:
        rows += _not_committed(
            {(offset.group, *offset.place) for offset in offsets}, {offset.group for offset in offsets}, target
        )
    return sorted_rows(rows)


def _not_committed(
    recorded: Collection[tuple[str, str, int]], groups: Collection[str], target: TargetState
) -> list[PlanRow]:
    """Returns rows for offsets that the groups have at the target but had not committed at the moment."""
    return [
        PlanRow(group, topic, partition, now.offset, None, SKIP, NOT_COMMITTED, metadata=now.metadata)
        for group in groups
        for (topic, partition), now in target.committed[group].items()
        if (group, topic, partition) not in recorded
    ]


def _row(offset: CommittedAsOf, target: TargetState | None, include_same: bool) -> PlanRow:
    remarks = []
    if offset.pending:
        remarks.append(PENDING)
    if offset.history in REMARKS and offset.offset is not None:
        remarks.append(REMARKS[offset.history])
    lost = DAMAGE if offset.history == DAMAGED else LOST
    if target is None:
        action = REFUSE if offset.offset is None else UNCHECKED
        why = lost if offset.offset is None else "no target was checked"
        return _made(offset, None, offset.offset, action, [why, *remarks])
    now = target.committed[offset.group].get(offset.place, Committed(None))
    log = target.logs.get(offset.place)
    fault = refusal(offset, now, log, target)
    if fault is not None or offset.offset is None or log is None:
        return _made(offset, now, None, REFUSE, [fault or lost, *remarks], log)
    to, clipped = clip(offset.offset, log)
    if clipped is not None:
        remarks.insert(0, clipped)
    if to == now.offset and offset.metadata == now.metadata and not include_same:
        return _made(offset, now, to, SKIP, ["correct already", *remarks], log)
    return _made(offset, now, to, SET, [moved(now, to), *remarks], log)


def _made(
    offset: CommittedAsOf, now: Committed | None, to: int | None, action: str, why: list[str], log: Log | None = None
) -> PlanRow:
    return PlanRow(
        offset.group,
        offset.topic,
        offset.partition,
        None if now is None else now.offset,
        to,
        action,
        "; ".join(why),
        offset.offset,
        offset.metadata,
        offset.history,
        "" if log is None else log.topic_id,
    )


def refusal(offset: CommittedAsOf, now: Committed, log: Log | None, target: TargetState) -> str | None:
    """Returns the reason why an offset must not be restored; None if it may be restored."""
    group = target.refused.get(offset.group)
    if group is not None:
        return group
    if offset.topic in target.unknown_topics:
        return "the topic was deleted"
    if log is None:
        return NO_LOG
    if offset.topic_id and log.topic_id and offset.topic_id != log.topic_id:
        return "the topic was recreated: its offsets refer to other records"
    if now.pending:
        return HELD_OPEN
    return None


def clip(offset: int, log: Log) -> tuple[int, str | None]:
    """Limits an offset to the range of a log. Returns the offset, and a remark if the offset changed, else None."""
    if offset < log.start:
        return log.start, f"clipped to the log's start, {log.start}: earlier records were deleted"
    if offset > log.end:
        return log.end, f"clipped to the log's end, {log.end}"
    return offset, None


def moved(now: Committed, to: int) -> str:
    """Describes how a restore changes an offset, for people: "back by 5"."""
    if now.offset is None:
        return "nothing is committed now"
    if to == now.offset:
        return "the same offset, committed again"
    return f"back by {now.offset - to}" if to < now.offset else f"forward by {to - now.offset}"


def counts(rows: Iterable[PlanRow]) -> Mapping[str, int]:
    """Returns the number of rows of each action."""
    totals = dict.fromkeys((SET, SKIP, REFUSE, UNCHECKED), 0)
    for row in rows:
        totals[row.action] += 1
    return totals
