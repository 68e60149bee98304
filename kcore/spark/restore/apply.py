"""A plan, carried out through the ordinary protocol: looked at again, committed, read back.

Offsets are committed as tools do it, without a member: a coordinator, Kafka's or kcore's, takes that for groups that
have no members, and refuses it for all others. So a member that joins between the look and the commit is not harmed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kcore.errors import KcoreError
from kcore.inspect.groups import Target
from kcore.protocol.error_codes import COORDINATOR_AWAY, code_name
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.spark.restore.plan import REFUSE, SET, SKIP, Plan, PlanRow, sorted_rows
from kcore.spark.restore.target import (
    HELD_OPEN,
    NO_LOG,
    Brokers,
    Committed,
    Log,
    Place,
    TargetState,
    by_group,
    committed_offsets,
    look,
    of_coordinator,
)

COMMIT_VERSION: Final = 8
"""OffsetCommit 9 and 10 bring nothing for a commit without a member but topic ids."""
OFFSETS_A_REQUEST: Final = 1_000

DONE: Final = "set"
"""Committed, and read back as it should be."""
ALREADY: Final = "already"
"""It was so before: an earlier run did it."""
WOULD: Final = "would set"
"""A dry run found nothing against it."""
SKIPPED: Final = "skipped"
"""The plan has nothing to do for it."""
REFUSED: Final = "refused"
"""The plan refuses it, or the target is not as the plan has it."""
HELD: Final = "held back"
"""Nothing is against it, but something is against other rows, and nothing at all was written."""
FAILED: Final = "failed"
"""The target refused it, or did not keep it."""


class Applied(NamedTuple):
    """What became of a row."""

    row: PlanRow
    result: str
    why: str = ""

    @property
    def fine(self) -> bool:
        """Whether all is as the plan wants it. What the plan itself refuses is not."""
        return self.result in (DONE, ALREADY, WOULD, SKIPPED)


def apply(plan: Plan, brokers: Brokers, *, dry_run: bool = False, partial: bool = False) -> list[Applied]:
    """Carries a plan out.

    Everything is looked at before anything is written. If the target has changed under any row that is to be set,
    nothing is written, unless `partial`: then the other rows are. A second run changes nothing: what is as it should be
    is left alone, but for rows whose offset is to be committed again as it is.

    Args:
        plan: the plan.
        brokers: its target.
        dry_run: look, but do not write.
        partial: write what can be written, whatever else cannot.

    Returns:
        What became of each row, in the order of group, topic and partition.

    Raises:
        KcoreError: the plan was made for another cluster, or the target cannot be looked at.
    """
    wanted = [row for row in plan.rows if row.action == SET]
    target = look(brokers, by_group((row.group, row.place) for row in wanted))
    if wanted and plan.target is not None and plan.target.cluster_id != target.cluster_id:
        raise KcoreError(f"the plan is for cluster {plan.target.cluster_id}, and this is {target.cluster_id}")
    results = {_key(one.row): one for one in map(_as_planned, plan.rows) if one is not None}
    checked = [_verified(row, target) for row in wanted]
    changed = any(one.result == REFUSED for one in checked)
    for one in checked:
        if one.result == WOULD and changed and not partial and not dry_run:
            one = Applied(one.row, HELD, "other rows are refused, and nothing was written")  # noqa: PLW2901
        results[_key(one.row)] = one
    if not dry_run:
        to_write: dict[str, list[PlanRow]] = defaultdict(list)
        for row in wanted:
            if results[_key(row)].result == WOULD:
                to_write[row.group].append(row)
        for group, rows in to_write.items():
            results.update({_key(one.row): one for one in _write_group(brokers, group, rows)})
    return [results[_key(row)] for row in sorted_rows(plan.rows)]


def _key(row: PlanRow) -> tuple[str, str, int]:
    return row.group, row.topic, row.partition


def _as_planned(row: PlanRow) -> Applied | None:
    """What becomes of a row that is not to be set."""
    if row.action == SET:
        return None
    if row.action == SKIP:
        return Applied(row, SKIPPED, row.why)
    if row.action == REFUSE:
        return Applied(row, REFUSED, row.why)
    return Applied(row, REFUSED, "the plan was not checked against a target: make it with --bootstrap or --data")


def _verified(row: PlanRow, target: TargetState) -> Applied:
    """Whether a row may be written: the target is as the plan has it, and nobody reads there."""
    now = target.committed[row.group].get(row.place, Committed(None))
    log = target.logs.get(row.place)
    moves = row.from_offset != row.to_offset
    if moves and (now.offset, now.metadata) == (row.to_offset, row.metadata):
        return Applied(row, ALREADY, "it is so already")
    fault = target.refused.get(row.group)
    if fault is None and now.pending:
        fault = HELD_OPEN
    if fault is None:
        fault = _moved_log(row, log)
    if fault is None and now.offset != row.from_offset:
        fault = f"changed since the plan: the target has {_shown(now.offset)}, the plan has {_shown(row.from_offset)}"
    return Applied(row, WOULD, row.why) if fault is None else Applied(row, REFUSED, fault)


def _moved_log(row: PlanRow, log: Log | None) -> str | None:
    """Why a partition's log is no longer the one that the plan was checked against, None if it is."""
    assert row.to_offset is not None, "a row without an offset is not to be set"
    if log is None:
        return NO_LOG
    if row.topic_id and log.topic_id and row.topic_id != log.topic_id:
        return "the topic was deleted and made again since the plan"
    if not log.start <= row.to_offset <= log.end:
        return f"the log has moved since the plan: it is from {log.start} to {log.end} now"
    return None


def _shown(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)


# ---- writing


def _write_group(brokers: Brokers, group: str, rows: Sequence[PlanRow]) -> Iterable[Applied]:
    """Commits a group's rows, and says of each what is there afterwards."""
    codes: dict[Place, str] = {}
    for start in range(0, len(rows), OFFSETS_A_REQUEST):
        some = rows[start : start + OFFSETS_A_REQUEST]
        try:
            codes.update(_commit(brokers, group, some))
        except (KcoreError, OSError) as error:  # whether it was written is to be seen
            codes.update({row.place: str(error) or type(error).__name__ for row in some})
    try:
        found = committed_offsets(brokers, group, ())
    except (KcoreError, OSError) as error:
        return [Applied(row, FAILED, f"cannot be read back: {error}") for row in rows]
    return [_judged(row, codes.get(row.place), found.get(row.place, Committed(None))) for row in rows]


def _judged(row: PlanRow, fault: str | None, now: Committed) -> Applied:
    right = (now.offset, now.metadata) == (row.to_offset, row.metadata)
    if right and (fault is None or row.from_offset != row.to_offset):
        return Applied(row, DONE, row.why)
    if fault is not None:
        return Applied(row, FAILED, fault)
    return Applied(row, FAILED, f"committed, but {_shown(now.offset)} was read back")


def _commit(brokers: Brokers, group: str, rows: Sequence[PlanRow]) -> Mapping[Place, str]:
    """Commits; gives the partitions that were refused, with the reason."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for row in rows:
        assert row.to_offset is not None, "a row without an offset is not to be set"
        part = OffsetCommitRequestPartition(
            partition_index=row.partition,
            committed_offset=row.to_offset,
            # No leader epoch: at the offset that it was clipped to, or in this cluster, the log's may be another one.
            committed_leader_epoch=-1,
            committed_metadata=row.metadata,
        )
        by_topic[row.topic].append(part)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
    )

    def ask(coordinator: Target) -> tuple[Any, int]:
        answer = coordinator.send(request, COMMIT_VERSION)
        codes = {part.error_code for topic in answer.topics for part in topic.partitions}
        return answer, next(iter(codes & COORDINATOR_AWAY), 0)

    answer = of_coordinator(brokers, group, ask)
    return {
        (topic.name, part.partition_index): code_name(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code
    }
