"""Reads the state of a restore's target: groups and their members, topics, log starts and ends, committed offsets.

Each request of Kafka's protocol goes to the responsible broker: a group's coordinator or a partition's leader.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.errors import KcoreError
from kcore.inspect.groups import EARLIEST, LATEST, Target
from kcore.protocol.error_codes import COORDINATOR_AWAY, ErrorCode, code_name
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kcore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kcore.client import ClientSecurity

METADATA_VERSION: Final = 12
OFFSETS_VERSION: Final = 8
"""The newest version of OffsetFetch that names several groups and needs no member (KIP-709, KIP-848)."""
GROUPS_A_REQUEST: Final = 100
TRIES: Final = 100
PAUSE_S: Final = 0.2

NO_LOG: Final = "the partition is gone, or has no leader"
HELD_OPEN: Final = "a transaction that is open now holds an offset"

TopicPartition = tuple[str, int]


class Brokers(Protocol):
    """The interface of a cluster: `kcore.client.cluster.Cluster`, or one engine."""

    def send(self, request: Any, version: int | None = None) -> Any:
        """Sends a request to any broker."""
        ...

    def coordinator(self, group_id: str) -> Target:
        """Returns a group's coordinator."""
        ...

    def partitions(self, topics: Sequence[str], create: bool = False) -> dict[str, list[int]]:
        """Returns the partitions of topics."""
        ...

    def leader(self, topic: str, partition: int) -> Target:
        """Returns the leader of a partition that `partitions` has found."""
        ...


class OneEngine:
    """An engine of this process as a cluster of one broker."""

    def __init__(self, engine: Target) -> None:
        self._engine = engine

    def send(self, request: Any, version: int | None = None) -> Any:
        """Sends a request to the engine."""
        return self._engine.send(request, version)

    def coordinator(self, group_id: str) -> Target:
        """Returns the engine."""
        return self._engine

    def partitions(self, topics: Sequence[str], create: bool = False) -> dict[str, list[int]]:
        """Returns nothing: the engine leads every partition."""
        return {}

    def leader(self, topic: str, partition: int) -> Target:
        """Returns the engine."""
        return self._engine


@contextmanager
def open_brokers(bootstrap: str | None, data: str | None, security: ClientSecurity | None = None) -> Iterator[Brokers]:
    """Opens a target.

    Args:
        bootstrap: HOST:PORT of a cluster's broker; None: the target is a folder.
        data: a data folder that no server has open; used if `bootstrap` is None.
        security: TLS and SASL of the cluster; None: neither.

    Raises:
        KcoreError: it cannot be reached or opened.
    """
    if bootstrap is not None:
        from kcore.client.cluster import Cluster  # noqa: PLC0415

        with Cluster(bootstrap, security=security) as cluster:
            yield cluster
    else:
        import kcore  # noqa: PLC0415

        assert data is not None, "either `bootstrap` or `data` is given"
        with kcore.open(data, create=False) as engine:
            yield OneEngine(engine)


class Committed(NamedTuple):
    """A committed offset of a target; `pending` is True if an open transaction holds another one."""

    offset: int | None
    metadata: str = ""
    pending: bool = False


class Log(NamedTuple):
    """Start and end of a partition's log; `topic_id` is empty if the server does not report it."""

    start: int
    end: int
    topic_id: str = ""


class TargetState(NamedTuple):
    """The current state of a target.

    Attributes:
        cluster_id: its cluster's id.
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


def look(brokers: Brokers, wanted: Mapping[str, Collection[TopicPartition]]) -> TargetState:
    """Reads all state of a target that a restore depends on.

    Args:
        brokers: the target.
        wanted: group -> the partitions whose offsets are to be restored.

    Raises:
        KcoreError: the target cannot be reached, or refuses a request.
    """
    partitions = {place for own in wanted.values() for place in own}
    topic_ids, cluster_id = _topics(brokers, {topic for topic, _ in partitions})
    logs = _logs(brokers, [place for place in sorted(partitions) if place[0] in topic_ids], topic_ids)
    unknown = frozenset({topic for topic, _ in partitions} - topic_ids.keys())
    committed = {group: committed_offsets(brokers, group, own) for group, own in sorted(wanted.items())}
    return TargetState(cluster_id, refused_groups(brokers, wanted.keys()), committed, logs, unknown)


def by_group(partitions: Iterable[tuple[str, TopicPartition]]) -> dict[str, set[TopicPartition]]:
    """Groups (group, partition) pairs by group."""
    found: dict[str, set[TopicPartition]] = defaultdict(set)
    for group, place in partitions:
        found[group].add(place)
    return dict(found)


def _topics(brokers: Brokers, names: Collection[str]) -> tuple[dict[str, str], str | None]:
    """Returns the ids of the existing topics, and the cluster's id."""
    requested = [MetadataRequestTopic(name=name) for name in sorted(names)]
    response = brokers.send(MetadataRequest(topics=requested, allow_auto_topic_creation=False), METADATA_VERSION)
    found = {}
    for topic in response.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if topic.error_code:
            raise KcoreError(f"topic {topic.name!r}: {code_name(topic.error_code)}")
        found[str(topic.name)] = "" if topic.topic_id == ZERO_UUID else topic.topic_id.hex()
    return found, response.cluster_id


def _logs(
    brokers: Brokers, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Log]:
    brokers.partitions(sorted(topic_ids))
    by_leader: dict[Target, list[TopicPartition]] = defaultdict(list)
    for place in partitions:
        try:
            by_leader[brokers.leader(*place)].append(place)
        except KcoreError:  # the topic has fewer partitions, or this one has no leader
            continue
    found: dict[TopicPartition, Log] = {}
    for leader, own in by_leader.items():
        starts, ends = _offsets_at(leader, own, EARLIEST), _offsets_at(leader, own, LATEST)
        for place in starts.keys() & ends.keys():
            found[place] = Log(starts[place], ends[place], topic_ids[place[0]])
    return found


def _offsets_at(leader: Target, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    topics = [ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()]
    found = {}
    for topic in leader.send(ListOffsetsRequest(replica_id=-1, topics=topics)).topics:
        for part in topic.partitions:
            if not part.error_code:
                found[topic.name, part.partition_index] = int(part.offset)
            elif part.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KcoreError(f"{topic.name}-{part.partition_index}: {code_name(part.error_code)}")
    return found


def committed_offsets(
    brokers: Brokers, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed]:
    """Returns the committed offsets of a group, and marks those that open transactions hold.

    Args:
        brokers: the target.
        group: the group.
        partitions: partitions to check for open transactions. Kafka reports a pending offset without a committed one
            only for partitions that the request names.

    Raises:
        KcoreError: the coordinator refuses the request or is not available.
    """
    found: dict[TopicPartition, Committed] = {}
    for place, part in _fetch_offsets(brokers, group, None).items():
        _check(group, place, part.error_code)
        if part.committed_offset >= 0:
            found[place] = Committed(int(part.committed_offset), part.metadata or "")
    for place, part in _fetch_offsets(brokers, group, partitions).items() if partitions else ():
        if part.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            found[place] = found.get(place, Committed(None))._replace(pending=True)
        elif part.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _check(group, place, part.error_code)
    return found


def _check(group: str, place: TopicPartition, code: int) -> None:
    if code:
        raise KcoreError(f"offset of {group!r} at {place[0]}-{place[1]}: {code_name(code)}")


def _fetch_offsets(
    brokers: Brokers, group: str, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, Any]:
    """Returns a group's offsets, or those of some partitions, with an error where a transaction holds one."""
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            by_topic[topic].append(partition)
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in by_topic.items()]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=partitions is not None
    )

    def send(coordinator: Target) -> tuple[Any, int]:
        (response,) = coordinator.send(request, OFFSETS_VERSION).groups
        return response, response.error_code

    response = of_coordinator(brokers, group, send)
    if response.error_code and response.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise KcoreError(f"offsets of {group!r}: {code_name(response.error_code)}")
    return {(topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions}


def of_coordinator(brokers: Brokers, group: str, send: Callable[[Target], tuple[Any, int]]) -> Any:
    """Sends a request to a group's coordinator; retries while it is not available.

    Args:
        brokers: the target.
        group: the group.
        send: sends the request; returns the response and its error code.

    Raises:
        KcoreError: the coordinator stays unavailable.
    """
    for attempt in range(TRIES):
        try:
            response, code = send(brokers.coordinator(group))
        except KcoreError:  # no coordinator is known yet, or the connection broke
            if attempt == TRIES - 1:
                raise
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code not in COORDINATOR_AWAY:
            return response
        time.sleep(PAUSE_S)
    raise KcoreError(f"group {group!r}: {code_name(code)}")


# ---- members


def refused_groups(brokers: Brokers, groups: Collection[str]) -> dict[str, str]:
    """Returns the groups whose offsets must not be changed, with the reason: members, or a type without offsets."""
    by_coordinator: dict[Target, list[str]] = defaultdict(list)
    for group in sorted(groups):
        by_coordinator[of_coordinator(brokers, group, lambda coordinator: (coordinator, 0))].append(group)
    found: dict[str, str] = {}
    for coordinator, own in by_coordinator.items():
        kinds = _kinds(coordinator)
        for start in range(0, len(own), GROUPS_A_REQUEST):
            some = own[start : start + GROUPS_A_REQUEST]
            for kind, describe in _DESCRIBERS.items():
                of_kind = [group for group in some if (kinds.get(group) or "classic") == kind]
                found.update(describe(coordinator, of_kind) if of_kind else {})
            found.update(
                {group: "a share group has no committed offsets" for group in some if kinds.get(group) == "share"}
            )
    return found


def _kinds(coordinator: Target) -> dict[str, str]:
    response = coordinator.send(ListGroupsRequest())
    if response.error_code:
        raise KcoreError(f"groups cannot be listed: {code_name(response.error_code)}")
    return {str(group.group_id): str(group.group_type).lower() for group in response.groups}


def _classic(coordinator: Target, groups: Sequence[str]) -> dict[str, str]:
    return _with_members(coordinator.send(DescribeGroupsRequest(groups=list(groups))).groups)


def _consumer(coordinator: Target, groups: Sequence[str]) -> dict[str, str]:
    return _with_members(coordinator.send(ConsumerGroupDescribeRequest(group_ids=list(groups))).groups)


def _streams(coordinator: Target, groups: Sequence[str]) -> dict[str, str]:
    return _with_members(coordinator.send(StreamsGroupDescribeRequest(group_ids=list(groups))).groups)


_DESCRIBERS: Final = {"classic": _classic, "consumer": _consumer, "streams": _streams}


def _with_members(described: Iterable[Any]) -> dict[str, str]:
    found = {}
    for group in described:
        if group.error_code and group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            found[group.group_id] = f"the group cannot be looked at: {code_name(group.error_code)}"
        elif group.members:
            found[group.group_id] = f"the group has {len(group.members)} members ({group.group_state})"
        elif group.group_state not in ("Empty", "Dead", ""):
            found[group.group_id] = f"the group is {group.group_state}"
    return found
