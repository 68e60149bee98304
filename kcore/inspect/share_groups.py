"""Share groups (KIP-932): descriptions, and the start offset and lag of each share partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kcore.errors import KcoreError
from kcore.inspect.groups import Target, list_groups, log_ends, offset_rows
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest

SHARE: Final = "share"
"""The type of share groups in ListGroups."""
NOT_ONE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID)
UNKNOWN: Final = -1


def share_groups(server: Target, group_ids: Sequence[str]) -> dict[str, Any]:
    """Describes the given groups that are share groups; a server without KIP-932 has none."""
    if not group_ids:
        return {}
    try:
        response = server.send(ShareGroupDescribeRequest(group_ids=list(group_ids)))
    except KcoreError:
        return {}
    return {group.group_id: group for group in response.groups if group.error_code not in NOT_ONE}


def all_offset_rows(server: Target, group_ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns (group, topic, partition, offset, log end, lag, metadata) of groups of all types, sorted.

    The offset of a share group is the start offset: all records before it are acknowledged or archived.

    Args:
        server: a server or an engine.
        group_ids: the groups; none: all.

    Raises:
        KcoreError: the server refused a group.
    """
    types = {group.group_id: group.group_type for group in list_groups(server)}
    wanted = list(group_ids) or list(types)
    shared = [group_id for group_id in wanted if types.get(group_id) == SHARE]
    rows = offset_rows(server, [group_id for group_id in wanted if types.get(group_id) != SHARE])
    return sorted([*rows, *share_offset_rows(server, shared)], key=lambda row: row[:3])


def share_offset_rows(server: Target, group_ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns the rows of share groups; offset and lag are None before the first member has fetched.

    Raises:
        KcoreError: the server refused a group.
    """
    if not group_ids:
        return []
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    found = []
    for group in server.send(DescribeShareGroupOffsetsRequest(groups=asked)).groups:
        if group.error_code:
            raise KcoreError(f"offsets of {group.group_id!r}: {code_name(group.error_code)}")
        found += [(group.group_id, topic.topic_name, part) for topic in group.topics for part in topic.partitions]
    ends = log_ends(server, {(name, part.partition_index) for _, name, part in found})
    return [
        (
            group_id,
            name,
            part.partition_index,
            None if part.start_offset == UNKNOWN else part.start_offset,
            ends.get((name, part.partition_index)),
            None if part.lag == UNKNOWN else part.lag,
            None,
        )
        for group_id, name, part in found
    ]
