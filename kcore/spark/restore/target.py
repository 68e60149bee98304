"""Reads the state of a restore's target: groups and their members, topics, log starts and ends, committed offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.node.types import TopicPartition
from kcore.printable import counted
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kcore.client import ClientSecurity
    from kcore.node._sync.node import Node

NO_LOG: Final = "the partition is gone, or has no leader"
HELD_OPEN: Final = "a transaction that is open now holds an offset"
SHARE: Final = "share"


@contextmanager
def open_target(bootstrap: str | None, data: str | None, security: ClientSecurity | None = None) -> Iterator[Node]:
    """Opens a target.

    Args:
        bootstrap: HOST:PORT of a cluster's broker; None: the target is a folder.
        data: a data folder that no server has open; used if `bootstrap` is None.
        security: TLS and SASL of the cluster; None: neither.

    Raises:
        KcoreError: the target cannot be reached or opened.
    """
    import kcore  # noqa: PLC0415

    if bootstrap is not None:
        with kcore.connect(bootstrap, security=security) as node:
            yield node
    else:
        assert data is not None, "either `bootstrap` or `data` is given"
        with kcore.open(data, create=False) as embedded:
            yield embedded


class Committed(NamedTuple):
    """A committed offset of a target; `pending` is True if an open transaction has another offset of the partition."""

    offset: int | None
    metadata: str = ""
    pending: bool = False


class Log(NamedTuple):
    """The start and end of a partition's log; `topic_id` is empty if the server does not report it."""

    start: int
    end: int
    topic_id: str = ""


class TargetState(NamedTuple):
    """The current state of a target.

    Attributes:
        cluster_id: the id of the target's cluster.
        refused: group -> the reason why its offsets must not be changed.
        committed: group -> (topic, partition) -> its committed offset.
        logs: (topic, partition) -> its log; missing partitions are left out.
        unknown_topics: topics that do not exist.
    """

    cluster_id: str | None
    refused: Mapping[str, str]
    committed: Mapping[str, Mapping[TopicPartition, Committed]]
    logs: Mapping[TopicPartition, Log]
    unknown_topics: frozenset[str]


def look(node: Node, partitions_by_group: Mapping[str, Collection[tuple[str, int]]]) -> TargetState:
    """Reads all state of a target that a restore depends on.

    Args:
        node: the target.
        partitions_by_group: group -> the partitions whose offsets are to be restored.

    Raises:
        KafkaError: the target refuses a request.
        ConnectionClosedError: the target cannot be reached.
    """
    partitions = {TopicPartition(*place) for own in partitions_by_group.values() for place in own}
    names = {topic for topic, _ in partitions}
    described = node.topics.describe(sorted(names), missing_ok=True) if names else []
    topic_ids = {topic.name: "" if topic.id == ZERO_UUID else topic.id.hex() for topic in described}
    existing = sorted(place for place in partitions if place.topic in topic_ids)
    starts = node.topics.start_offsets(existing)
    ends = node.topics.end_offsets(existing, isolation="read_uncommitted")
    logs = {place: Log(starts[place], ends[place], topic_ids[place.topic]) for place in starts.keys() & ends.keys()}
    committed = {group: committed_offsets(node, group, own) for group, own in sorted(partitions_by_group.items())}
    refused = refused_groups(node, partitions_by_group.keys())
    return TargetState(node.cluster_id(), refused, committed, logs, frozenset(names - topic_ids.keys()))


def by_group(partitions: Iterable[tuple[str, TopicPartition]]) -> dict[str, set[TopicPartition]]:
    """Groups (group, partition) pairs by group."""
    partitions_by_group: dict[str, set[TopicPartition]] = defaultdict(set)
    for group, topic_partition in partitions:
        partitions_by_group[group].add(topic_partition)
    return dict(partitions_by_group)


def committed_offsets(
    node: Node, group: str, partitions: Collection[tuple[str, int]]
) -> dict[TopicPartition, Committed]:
    """Returns the committed offsets of a group, and marks partitions with a pending offset of an open transaction.

    Args:
        node: the target.
        group: the group id.
        partitions: partitions to check for open transactions. Kafka reports a pending offset without a committed one
            only for partitions that the request names.

    Raises:
        KafkaError: the coordinator refuses the request.
    """
    try:
        committed = node.group(group).committed()
        pending = node.group(group).pending_offsets(sorted(partitions)) if partitions else set()
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    offsets = {topic_partition: Committed(value.offset, value.metadata) for topic_partition, value in committed.items()}
    for topic_partition in pending:
        offsets[topic_partition] = offsets.get(topic_partition, Committed(None))._replace(pending=True)
    return offsets


def refused_groups(node: Node, groups: Collection[str]) -> dict[str, str]:
    """Returns the groups whose offsets must not be changed, with the reason.

    For example, a group has members, or it is a share group, which has no committed offsets.
    """
    reasons: dict[str, str] = {}
    for group_id, group in node.groups.describe(sorted(groups)).items():
        if isinstance(group, KafkaError):
            if group.code != ErrorCode.GROUP_ID_NOT_FOUND:
                reasons[group_id] = f"the group cannot be described: {group.code.name}"
        elif group.type == SHARE:
            reasons[group_id] = "a share group has no committed offsets"
        elif group.members:
            reasons[group_id] = f"the group has {counted(len(group.members), 'members')} ({group.state})"
        elif group.state not in ("Empty", "Dead", ""):
            reasons[group_id] = f"the group is {group.state}"
    return reasons
