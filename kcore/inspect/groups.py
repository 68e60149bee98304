"""Groups and offsets, fetched by typed requests from a server or engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kcore.errors import KcoreError
from kcore.node import versions
from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

EARLIEST, LATEST = -2, -1  # ListOffsets: the start and the end of a log


class Target(Protocol):
    """Serves typed requests: an engine in this process, or a connection to a server."""

    def send(self, request: Any, version: int | None = None) -> Any:
        """Returns the response to a request."""
        ...


def list_groups(server: Target, states: Sequence[str] = ()) -> list[Any]:
    """Returns every group, or the groups in some states, sorted by id.

    Raises:
        KcoreError: the server refused.
    """
    response = server.send(ListGroupsRequest(states_filter=states))
    if response.error_code:
        raise KcoreError(f"cannot list groups: {code_name(response.error_code)}")
    return sorted(response.groups, key=lambda group: str(group.group_id))


def offset_rows(server: Target, group_ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns (group, topic, partition, committed, log end, lag, metadata) of every committed offset, sorted.

    The lag is None if the partition no longer exists.

    Raises:
        KcoreError: the server refused a group.
    """
    if not group_ids:
        return []
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in group_ids])
    committed: list[tuple[str, str, int, int, str]] = []
    for group in server.send(request, versions.FETCH_OFFSETS).groups:
        if group.error_code:
            raise KcoreError(f"offsets of {group.group_id!r}: {code_name(group.error_code)}")
        for topic in group.topics:
            for part in topic.partitions:
                row = (group.group_id, topic.name, part.partition_index, part.committed_offset, part.metadata or "")
                committed.append(row)
    ends = log_ends(server, {(topic, partition) for _, topic, partition, _, _ in committed})
    rows = []
    for group_id, name, partition, offset, metadata in sorted(committed):
        end = ends.get((name, partition))
        lag = None if end is None or offset < 0 else end - offset
        rows.append((group_id, name, partition, offset, end, lag, metadata or None))
    return rows


def log_ends(server: Target, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Returns the high watermark of each existing partition."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    if not by_topic:
        return {}
    topics = [_asked(name, indexes, LATEST) for name, indexes in by_topic.items()]
    return {
        (topic.name, part.partition_index): part.offset
        for topic in server.send(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
        for part in topic.partitions
        if not part.error_code
    }


def owned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Decodes a consumer's assignment into topic -> partitions; None if it is not of the consumer protocol."""
    if not assignment:
        return {}
    try:
        owned, _ = ConsumerProtocolAssignment.decode_versioned(assignment)
    except DecodeError:
        return None
    return {topic.topic: sorted(topic.partitions) for topic in owned.assigned_partitions}


def list_offset(server: Target, topic: str, partition: int, timestamp: int) -> int:
    """Returns one offset of a partition: EARLIEST, LATEST, or the first at or after a timestamp in ms.

    Raises:
        KcoreError: the server refused.
    """
    request = ListOffsetsRequest(replica_id=-1, topics=[_asked(topic, [partition], timestamp)])
    response = server.send(request).topics[0].partitions[0]
    if response.error_code:
        raise KcoreError(f"{topic}-{partition}: {code_name(response.error_code)}")
    return int(response.offset)


def _asked(topic: str, partitions: Iterable[int], timestamp: int) -> ListOffsetsTopic:
    parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
    return ListOffsetsTopic(name=topic, partitions=parts)
