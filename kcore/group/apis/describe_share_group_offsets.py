"""DescribeShareGroupOffsets (API key 90), v0-1: start offsets of share groups (KIP-932).

v1 adds the lag (KIP-1226): the number of records that follow the start offset and are not completely delivered.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kcore.group.apis.share_offsets import ShareOffsetsApi
from kcore.group.share.chain import chain
from kcore.group.share.group import ShareGroup
from kcore.group.share.offsets import MAX_NAMES, TOO_MANY
from kcore.group.share.slicing import FEW_PARTITIONS, NAME_COST_US, PARTITION_COST_US, ROW_COST_US, in_slices
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kcore.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryData,
)
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.share.end_offsets import EndOffsets
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work

UNKNOWN: Final = -1
"""The value of an unknown start offset, lag or leader epoch."""

MAX_LAG: Final = 2**63 - 1
"""The largest lag in a response. The smallest lag is `-MAX_LAG`.

The response has an int64 for the lag. The computed lag may exceed an int64, because a client can set any start offset.
"""


class RequestedTopic(NamedTuple):
    """The partitions of one topic that the response must describe.

    Attributes:
        name: the topic's name.
        topic_id: the topic's id, 16 bytes.
        partitions: the requested partitions that exist.
        missing: the requested partitions that do not exist.
    """

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    missing: tuple[int, ...] = ()


class ReadTopic(NamedTuple):
    """A topic with the response entries that are built from the share coordinator's responses.

    Attributes:
        topic: the topic and its partitions.
        parts: for each run of `FEW_PARTITIONS` partitions, the list of their response entries, or a `Pending` for this
            list.
        missing: the response entries of partitions that do not exist.
    """

    topic: RequestedTopic
    parts: list[Any]
    missing: list[DescribeShareGroupOffsetsResponsePartition]


class Allowance:
    """A counter of the topics and partitions that a response may still describe before it reaches `MAX_NAMES`."""

    __slots__ = ("_cost", "_names")

    def __init__(self, names: int) -> None:
        self._names = names
        self._cost = 0

    def admits(self, count: int) -> bool:
        """Deducts `count` topics and partitions from the allowance and returns True.

        If the allowance is smaller than `count`, leaves it unchanged and returns False.
        """
        self._cost += NAME_COST_US * count
        if count > self._names:
            return False
        self._names -= count
        return True

    def take_cost(self) -> int:
        """Returns the cost of all calls of `admits` since the last call of `take_cost`, in microseconds."""
        cost, self._cost = self._cost, 0
        return cost


class InitializedTopics(NamedTuple):
    """An internal request to a group's shard for the topics whose share-partition states are initialized.

    Attributes:
        group_id: the group whose topics are requested.
    """

    group_id: str


class DescribeShareGroupOffsetsApi(
    ShareOffsetsApi[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse]
):
    """Handler of DescribeShareGroupOffsets requests, which need DESCRIBE on the group and on the topics."""

    key = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    request_type = DescribeShareGroupOffsetsRequest
    response_type = DescribeShareGroupOffsetsResponse
    versions = (0, 1)
    differs: ClassVar[str] = (
        f"{TOO_MANY[0].upper()}{TOO_MANY[1:]}; a request with more is refused with INVALID_REQUEST. "
        "Kafka delays the response by 31 seconds if a partition does not exist; kcore responds immediately."
    )

    __slots__ = ()

    def handle(self, context: RequestContext, request: DescribeShareGroupOffsetsRequest) -> Any:
        """Describes each group, in slices if the request is long. Each group has its own error."""
        named = len(request.groups) + sum(map(_names_of, request.groups))
        if named > MAX_NAMES:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, TOO_MANY)
        allowance = Allowance(MAX_NAMES - named)
        work = self._describe_all(context, request, allowance)

        def join(described: list[tuple[str | None, Any]]) -> Any:
            return self._join(context, request, described)

        several = sum(group.topics is None for group in request.groups) > 1  # each may have many partitions
        names = named + FEW_PARTITIONS if several else named
        return in_slices(self._shards.slices, self, context, request, work, names, join)

    def _join(
        self,
        context: RequestContext,
        request: DescribeShareGroupOffsetsRequest,
        described: list[tuple[str | None, Any]],
    ) -> Any:
        """Merges the descriptions of the groups into one response.

        If a group has no description because the request repeats the group, the response repeats the earlier
        description.
        """
        first = {group_id: i for i, (group_id, part) in reversed([*enumerate(described)]) if group_id is not None}
        order = [i if group_id is None else first[group_id] for i, (group_id, _) in enumerate(described)]
        needed = {i: number for number, i in enumerate(dict.fromkeys(order))}

        def build(responses: list[DescribeShareGroupOffsetsResponse]) -> DescribeShareGroupOffsetsResponse:
            return DescribeShareGroupOffsetsResponse(
                groups=[group for i in order for group in responses[needed[i]].groups]
            )

        return gather(self, context, request, [described[i][1] for i in needed], build)

    def _describe_all(
        self, context: RequestContext, request: DescribeShareGroupOffsetsRequest, allowance: Allowance
    ) -> Work:
        """Describes each group of the request. Returns a pair for each group.

        If the request names topics of the group, the pair is (None, response). If it requests all topics of the group,
        the pair is (group id, response). If such a request for all topics is repeated, the later pairs are (group id,
        None). Each response may be a `Pending`.
        """
        described: list[tuple[str | None, Any]] = []
        whole: set[str] = set()
        for group in request.groups:
            part = DescribeShareGroupOffsetsRequest(groups=[group])
            yield NAME_COST_US
            if not self._services.enabled:
                described.append((None, self.error(context, part, ErrorCode.UNSUPPORTED_VERSION)))
            elif not self.allowed(context, Operation.DESCRIBE, group.group_id):
                described.append((None, self.error(context, part, ErrorCode.GROUP_AUTHORIZATION_FAILED)))
            elif group.topics is None:
                repeated = group.group_id in whole
                whole.add(group.group_id)
                found = None if repeated else self._describe_initialized(context, part, group.group_id, allowance)
                described.append((group.group_id, found))
                yield allowance.take_cost()
            else:
                existing, decided = yield from self._look_up(context, group)
                described.append((None, self._summarize(context, part, existing, decided)))
                yield PARTITION_COST_US * sum(len(topic.partitions) for topic in existing)
        return described

    def _describe_initialized(
        self, context: RequestContext, part: DescribeShareGroupOffsetsRequest, group_id: str, allowance: Allowance
    ) -> Any:
        """Describes all topics of a group that have share-partition state and that the client may DESCRIBE.

        Returns INVALID_REQUEST if `allowance` is too small for the topics and their partitions.
        """

        def read(topics: tuple[RequestedTopic, ...]) -> Any:
            if not allowance.admits(sum(len(topic.partitions) + 1 for topic in topics)):
                return self.error(context, part, ErrorCode.INVALID_REQUEST, TOO_MANY)
            return self._summarize(context, part, topics, [], only_visible=True)

        return chain(
            self,
            context,
            part,
            self.run_part(context, group_id, InitializedTopics(group_id), ErrorCode.NONE),  # type: ignore[arg-type]
            read,
        )

    def _look_up(
        self, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
    ) -> Generator[int, None, tuple[list[RequestedTopic], list[DescribeShareGroupOffsetsResponseTopic]]]:
        """Returns a pair: the requested topics to describe, and the response entries of the other topics.

        The other topics do not exist, or the client may not DESCRIBE them.
        """
        existing, decided = [], []
        for requested in group.topics or ():
            topic = self._topics.by_name(requested.topic_name)
            code = ErrorCode.NONE
            if not self._may_describe(context, requested.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            indexes = list(dict.fromkeys(requested.partitions))  # a repeated partition is described once
            yield NAME_COST_US
            if topic is not None and not code:
                valid = tuple(index for index in indexes if 0 <= index < topic.partitions)
                missing = tuple(index for index in indexes if not 0 <= index < topic.partitions)
                existing.append(RequestedTopic(topic.name, topic.topic_id, valid, missing))
                continue
            partitions = yield from _without_offsets(indexes, code)
            decided.append(
                DescribeShareGroupOffsetsResponseTopic(topic_name=requested.topic_name, partitions=partitions)
            )
        return existing, decided

    def _may_describe(self, context: RequestContext, name: str) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _summarize(
        self,
        context: RequestContext,
        part: DescribeShareGroupOffsetsRequest,
        existing: Sequence[RequestedTopic],
        decided: list[DescribeShareGroupOffsetsResponseTopic],
        *,
        only_visible: bool = False,
    ) -> Any:
        """Reads the share-partition states of a group from the share coordinator, and adds the lags.

        Args:
            context: the context of the request.
            part: the request, reduced to one group.
            existing: the topics whose states are read.
            decided: the response entries of other topics.
            only_visible: True to leave out topics that the client may not DESCRIBE.
        """
        (group,) = part.groups
        work = self._read(context, part, existing, only_visible)
        names = sum(len(topic.partitions) + len(topic.missing) + 1 for topic in existing)

        def join(read: list[ReadTopic]) -> Any:
            rows = [part for topic in read for part in topic.parts]

            def build(responses: list[list[DescribeShareGroupOffsetsResponsePartition]]) -> Any:
                return _response(group.group_id, [*decided, *_topics_of(read, responses)])

            return gather(self, context, part, rows, build)

        return in_slices(self._shards.slices, self, context, part, work, names, join)

    def _read(
        self,
        context: RequestContext,
        part: DescribeShareGroupOffsetsRequest,
        existing: Iterable[RequestedTopic],
        only_visible: bool,
    ) -> Work:
        """Requests state summaries from the share coordinator, for a few partitions at a time.

        Returns a `ReadTopic` for each topic.
        """
        read = []
        for topic in existing:
            if only_visible and not self._may_describe(context, topic.name):
                yield NAME_COST_US
                continue
            parts = []
            for first in range(0, len(topic.partitions), FEW_PARTITIONS):
                some = topic._replace(partitions=topic.partitions[first : first + FEW_PARTITIONS])
                parts.append(self._read_some(context, part, some))
                yield PARTITION_COST_US * len(some.partitions)
            missing = yield from _without_offsets(topic.missing, ErrorCode.NONE)
            read.append(ReadTopic(topic, parts, missing))
        return read

    def _read_some(self, context: RequestContext, part: DescribeShareGroupOffsetsRequest, topic: RequestedTopic) -> Any:
        """Returns the response entries of partitions of one topic, or a `Pending` for these entries."""
        persister = self._services.persister
        assert persister is not None, "a served node has a persister"
        partitions = [PartitionData(partition=index, leader_epoch=UNKNOWN) for index in topic.partitions]
        request = ReadShareGroupStateSummaryRequest(
            group_id=part.groups[0].group_id,
            topics=[ReadStateSummaryData(topic_id=topic.topic_id, partitions=partitions)],
        )

        def add_lags(summary: ReadShareGroupStateSummaryResponse) -> Any:
            states = {state.partition: state for result in summary.results for state in result.partitions}
            lagging = [index for index in topic.partitions if _has_lag(states.get(index))]
            ends = self._services.end_offsets.look_up(topic.name, lagging)

            def build(parts: list[EndOffsets]) -> list[DescribeShareGroupOffsetsResponsePartition]:
                return [_partition(index, states.get(index), parts[0]) for index in topic.partitions]

            return gather(self, context, part, [ends], build)

        return chain(self, context, part, persister.read_summary(request), add_lags)

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, request: InitializedTopics
    ) -> tuple[RequestedTopic, ...]:
        """Returns the initialized topics of the group; an empty tuple if the group does not exist or has another
        type.
        """
        group = machine.groups.get(request.group_id)
        if not isinstance(group, ShareGroup):
            return ()
        return tuple(
            RequestedTopic(topic.name, topic_id, tuple(sorted(topic.partitions)))
            for topic_id, topic in group.state_partitions.initialized.items()
        )

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> DescribeShareGroupOffsetsResponse:
        """Returns a response with the code for every group, without topics."""
        groups = [request.group_id] if isinstance(request, InitializedTopics) else [g.group_id for g in request.groups]
        return DescribeShareGroupOffsetsResponse(
            groups=[
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group_id, error_code=code, error_message=message or code.message
                )
                for group_id in groups
            ]
        )


def _without_offset(index: int, code: ErrorCode) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNKNOWN, error_code=code, error_message=code.message if code else None
    )


def _has_lag(state: Any) -> bool:
    """Returns True if a state summary has the values from which the lag is computed.

    These values are the start offset and the number of completely delivered records.
    """
    return (
        state is not None
        and not state.error_code
        and UNKNOWN not in (state.start_offset, state.delivery_complete_count)
    )


def _partition(index: int, state: Any, ends: EndOffsets) -> DescribeShareGroupOffsetsResponsePartition:
    """Returns the response entry of one partition. If the share coordinator has failed, the start offset is unknown.

    Args:
        index: the partition.
        state: the summary of the partition's state; None if the group id is empty, because there is no state in this
            case.
        ends: the end offsets of the partitions for which `_has_lag` returns True.
    """
    if state is None or state.error_code:
        return _without_offset(index, ErrorCode.NONE)
    lag = UNKNOWN
    if _has_lag(state):
        end_offset = ends.get(index)
        if end_offset is None:
            return _without_offset(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        lag = end_offset - state.start_offset - state.delivery_complete_count
        lag = max(-MAX_LAG, min(lag, MAX_LAG))
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )


def _names_of(group: DescribeShareGroupOffsetsRequestGroup) -> int:
    """Returns the number of topics and partitions that a request names for one group."""
    return sum(len(topic.partitions) + 1 for topic in group.topics or ())


def _without_offsets(
    indexes: Sequence[int], code: ErrorCode
) -> Generator[int, None, list[DescribeShareGroupOffsetsResponsePartition]]:
    """Builds response entries with an error code and without offsets, in steps.

    Yields the cost of each step in microseconds.
    """
    found: list[DescribeShareGroupOffsetsResponsePartition] = []
    for first in range(0, len(indexes), FEW_PARTITIONS):
        some = indexes[first : first + FEW_PARTITIONS]
        found += [_without_offset(index, code) for index in some]
        yield ROW_COST_US * len(some)
    return found


def _topics_of(
    read: list[ReadTopic], responses: list[list[DescribeShareGroupOffsetsResponsePartition]]
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Merges partition entries into one response entry per topic.

    Args:
        read: the topics, in the order of `responses`.
        responses: the partition entries for all `ReadTopic.parts` of these topics, in order.
    """
    parts = iter(responses)
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=each.topic.name,
            topic_id=each.topic.topic_id,
            partitions=[*(row for rows in islice(parts, len(each.parts)) for row in rows), *each.missing],
        )
        for each in read
    ]


def _response(group_id: str, topics: list[DescribeShareGroupOffsetsResponseTopic]) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)]
    )
