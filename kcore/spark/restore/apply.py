"""Applies a restore plan through Kafka's protocol: checks the target again, commits offsets and reads them back.

The commit requests name no member, like those of Kafka's tools. A coordinator accepts these requests only for groups
without members. If a member joins between the check and the commit, the coordinator therefore refuses the commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError, KcoreError, PartitionErrors
from kcore.node.types import OffsetAndMetadata, TopicPartition
from kcore.spark.restore.plan import REFUSE, SET, SKIP, Plan, PlanRow, sorted_rows
from kcore.spark.restore.target import (
    HELD_OPEN,
    NO_LOG,
    Committed,
    Log,
    TargetState,
    by_group,
    committed_offsets,
    look,
)

if TYPE_CHECKING:
    from kcore.node._sync.node import Node

OFFSETS_A_REQUEST: Final = 1_000

DONE: Final = "set"
"""Result of a row: the offset was committed and read back correctly."""
ALREADY: Final = "already"
"""Result of a row: the target had the offset already, from an earlier run."""
WOULD: Final = "would set"
"""Result of a row: a dry run found no fault."""
SKIPPED: Final = "skipped"
"""Result of a row: the plan skips the row."""
REFUSED: Final = "refused"
"""Result of a row: the plan refuses the row, or the target differs from the plan."""
HELD: Final = "held back"
"""Result of a row: the row has no fault, but was not written, because other rows have faults."""
FAILED: Final = "failed"
"""Result of a row: the target refused the commit or did not store it."""


class Applied(NamedTuple):
    """The result of one row of a plan."""

    row: PlanRow
    result: str
    why: str = ""

    @property
    def fine(self) -> bool:
        """True if the target agrees with the plan. False for rows that the plan itself refuses."""
        return self.result in (DONE, ALREADY, WOULD, SKIPPED)


def apply(plan: Plan, node: Node, *, dry_run: bool = False, partial: bool = False) -> list[Applied]:
    """Applies a plan.

    All rows are checked before the first write. If the target no longer matches a row with the action `set`, no row is
    written. With `partial`, `apply` leaves out only the rows that no longer match, and writes the others.

    A second run changes no offset: it skips offsets that the target already has. Only rows that renew an unchanged
    offset are committed again.

    Args:
        plan: the rows to write, with the target's offsets that the plan expects.
        node: the cluster or engine that receives the offsets.
        dry_run: True to check without writing.
        partial: True to write the rows without faults even if other rows have faults.

    Returns:
        The result of each row, ordered by group, topic and partition.

    Raises:
        KcoreError: the plan was made for another cluster, or the target cannot be reached.
        KafkaError: the target refuses to be read.
    """
    to_set = [row for row in plan.rows if row.action == SET]
    target = look(node, by_group((row.group, row.place) for row in to_set))
    if to_set and plan.target is not None and plan.target.cluster_id != target.cluster_id:
        raise KcoreError(
            f"the plan was made for cluster {plan.target.cluster_id}, but the target is cluster {target.cluster_id}"
        )
    results = {_key(applied.row): applied for applied in map(_as_planned, plan.rows) if applied is not None}
    checked = [_verified(row, target) for row in to_set]
    changed = any(applied.result == REFUSED for applied in checked)
    for applied in checked:
        if applied.result == WOULD and changed and not partial and not dry_run:
            applied = Applied(applied.row, HELD, "not written, because other rows are refused")  # noqa: PLW2901
        results[_key(applied.row)] = applied
    if not dry_run:
        to_write: dict[str, list[PlanRow]] = defaultdict(list)
        for row in to_set:
            if results[_key(row)].result == WOULD:
                to_write[row.group].append(row)
        for group, rows in to_write.items():
            results.update({_key(applied.row): applied for applied in _write_group(node, group, rows)})
    return [results[_key(row)] for row in sorted_rows(plan.rows)]


def _key(row: PlanRow) -> tuple[str, str, int]:
    return row.group, row.topic, row.partition


def _as_planned(row: PlanRow) -> Applied | None:
    """Returns the result of a row whose offset is not to be set; None for a row with the action `set`."""
    if row.action == SET:
        return None
    if row.action == SKIP:
        return Applied(row, SKIPPED, row.why)
    if row.action == REFUSE:
        return Applied(row, REFUSED, row.why)
    return Applied(row, REFUSED, "the plan was not checked against a target: make it with --bootstrap or --data")


def _verified(row: PlanRow, target: TargetState) -> Applied:
    """Checks that a row may be written: the target agrees with the plan, and the group has no members."""
    now = target.committed[row.group].get(row.place, Committed(None))
    log = target.logs.get(row.place)
    moves = row.from_offset != row.to_offset
    if moves and (now.offset, now.metadata) == (row.to_offset, row.metadata):
        return Applied(row, ALREADY, "correct already")
    fault = target.refused.get(row.group)
    if fault is None and now.pending:
        fault = HELD_OPEN
    if fault is None:
        fault = _moved_log(row, log)
    if fault is None and now.offset != row.from_offset:
        fault = f"changed since the plan: the target has {_shown(now.offset)}, the plan has {_shown(row.from_offset)}"
    return Applied(row, WOULD, row.why) if fault is None else Applied(row, REFUSED, fault)


def _moved_log(row: PlanRow, log: Log | None) -> str | None:
    """Returns the reason why a partition's log no longer fits a row of the plan; None if it fits."""
    assert row.to_offset is not None, "a row without an offset is not to be set"
    if log is None:
        return NO_LOG
    if row.topic_id and log.topic_id and row.topic_id != log.topic_id:
        return "the topic was deleted and made again since the plan"
    if not log.start <= row.to_offset <= log.end:
        return f"the log has changed since the plan: it now begins at {log.start} and ends at {log.end}"
    return None


def _shown(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)


# ---- writing

_FAILURES = (KcoreError, KafkaError, PartitionErrors, OSError)


def _write_group(node: Node, group: str, rows: Sequence[PlanRow]) -> Iterable[Applied]:
    """Commits a group's rows, reads them back, and returns their results."""
    codes: dict[TopicPartition, str] = {}
    for start in range(0, len(rows), OFFSETS_A_REQUEST):
        some = rows[start : start + OFFSETS_A_REQUEST]
        try:
            codes.update(_commit(node, group, some))
        except _FAILURES as error:  # reading back shows whether it was written
            codes.update({row.place: str(error) or type(error).__name__ for row in some})
    try:
        stored = committed_offsets(node, group, ())
    except _FAILURES as error:
        return [Applied(row, FAILED, f"cannot be read back: {error}") for row in rows]
    return [_judged(row, codes.get(row.place), stored.get(row.place, Committed(None))) for row in rows]


def _judged(row: PlanRow, fault: str | None, now: Committed) -> Applied:
    right = (now.offset, now.metadata) == (row.to_offset, row.metadata)
    if right and (fault is None or row.from_offset != row.to_offset):
        return Applied(row, DONE, row.why)
    if fault is not None:
        return Applied(row, FAILED, fault)
    return Applied(row, FAILED, f"committed, but {_shown(now.offset)} was read back")


def _commit(node: Node, group: str, rows: Sequence[PlanRow]) -> Mapping[TopicPartition, str]:
    """Commits offsets; returns the refused partitions with the error names."""
    offsets = {}
    for row in rows:
        assert row.to_offset is not None, "a row without an offset is not to be set"
        # The leader epoch is left out: the log may have another one at a clipped offset, or in this cluster.
        offsets[row.place] = OffsetAndMetadata(row.to_offset, row.metadata)
    try:
        node.group(group).commit(offsets)
    except PartitionErrors as errors:
        return {partition: error.code.name for partition, error in errors.errors.items()}
    except KafkaError as error:
        return dict.fromkeys(error.partitions or offsets, error.code.name)
    return {}
