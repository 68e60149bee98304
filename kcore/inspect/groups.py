"""Committed offsets and lag of groups, read through a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import kcore
from kcore.node.types import TopicPartition

SHARE = "share"
"""The type of share groups."""


class OffsetRow(NamedTuple):
    """A committed offset in a listing.

    Attributes:
        group: the id of the group.
        topic: the name of the topic.
        partition: the partition number.
        offset: the committed offset. For a share group, the start offset: all records before this offset are
            acknowledged or archived. None: no member of the share group has fetched yet.
        end: the offset after the last record of the partition; None: the partition does not exist.
        lag: the number of records that the group has not processed; None: unknown.
        metadata: the text that was committed with the offset; None if there is no text.
    """

    group: str
    topic: str
    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    metadata: str | None


def offset_rows(node: kcore.Node, group_ids: Iterable[str]) -> list[OffsetRow]:
    """Returns every committed offset of groups with its lag, sorted by group and partition.

    Raises:
        KafkaError: the server refused a group.
    """
    committed = node.groups.committed(group_ids)
    ends = log_ends(node, {partition for offsets in committed.values() for partition in offsets})
    rows = []
    for group_id in sorted(committed):
        for partition, value in sorted(committed[group_id].items()):
            end = ends.get(partition)
            lag = None if end is None else end - value.offset
            rows.append(OffsetRow(group_id, *partition, value.offset, end, lag, value.metadata or None))
    return rows


def share_offset_rows(node: kcore.Node, group_ids: Iterable[str]) -> list[OffsetRow]:
    """Returns the rows of share groups, sorted by group and partition.

    Raises:
        KafkaError: the server refused a group.
    """
    positions = {group_id: node.group(group_id).share_positions() for group_id in sorted(group_ids)}
    ends = log_ends(node, {partition for own in positions.values() for partition in own})
    return [
        OffsetRow(group_id, *partition, position.start, ends.get(partition), position.lag, None)
        for group_id, own in positions.items()
        for partition, position in own.items()
    ]


def all_offset_rows(node: kcore.Node, group_ids: Iterable[str]) -> list[OffsetRow]:
    """Returns the rows of groups of all types, sorted by group and partition.

    Args:
        node: an embedded engine or a cluster.
        group_ids: ids of the groups to include; empty: all groups.

    Raises:
        KafkaError: the server refused a group.
    """
    types = {group.group_id: group.type for group in node.groups.list()}
    wanted = list(group_ids) or list(types)
    shared = [group_id for group_id in wanted if types.get(group_id) == SHARE]
    rows = offset_rows(node, [group_id for group_id in wanted if types.get(group_id) != SHARE])
    return sorted([*rows, *share_offset_rows(node, shared)], key=lambda row: row[:3])


def log_ends(node: kcore.Node, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
    """Returns the high watermark of each existing partition."""
    return node.topics.end_offsets(partitions, isolation="read_uncommitted")
