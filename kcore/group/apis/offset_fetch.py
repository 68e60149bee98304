"""OffsetFetch (API key 9), v1-10: reads the committed offsets of groups.

v2 can fetch all topics, and adds an error for the group. v5 adds leader epochs (KIP-320), v7 the error for open
transactions (KIP-447), and v8 several groups (KIP-709). v9 adds the member (KIP-848), and v10 topic ids.

For a missing group, topic or offset, the response has the offset -1 and no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.group.offsets.store import NO_PARTITIONS, NO_TOPICS
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.api import Api
from kcore.runtime.pending import Pending, gather
from kcore.runtime.sliced import step
from kcore_ext.group.offset_fetch import OffsetFetchFastPath
from kcore_ext.group.offsets import fetch_responses

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicImage
    from kcore_ext.group.offsets import OffsetAndMetadata

GROUP_ERROR_SINCE = 2
SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
NO_OFFSET = -1
MAX_OFFSETS = 500_000
"""Maximum number of offsets in the response to a request about several groups.

The number of offsets in a request about one group is not limited.
"""
GROUP_COST_US = 10
"""The cost of reading a group without offsets, in microseconds."""
OFFSETS_A_MICROSECOND = 4
NO_LEADER_EPOCH = -1


class GroupQuery:
    """One group of an OffsetFetch request, with the results of the checks of permissions and topics.

    Attributes:
        group_id: the group whose offsets are read.
        member_id: the member id of the request, None for a client that is not a member (v9+).
        member_epoch: the member epoch of the request; -1 if it has none.
        requested: the topics of the request; None for all.
        lookups: the topics to read, (request topic, name, id or None); empty if the request is for all topics.
        refused: the response entries of topics that the checks refused.
        require_stable: whether partitions with an open transaction return UNSTABLE_OFFSET_COMMIT.
    """

    __slots__ = ("group_id", "lookups", "member_epoch", "member_id", "refused", "requested", "require_stable")

    def __init__(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        requested: Sequence[Any] | None,
        require_stable: bool,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.requested = requested
        self.require_stable = require_stable
        self.lookups: list[tuple[Any, str, bytes | None]] = []
        self.refused: list[Any] = []


class OffsetFetchOfGroupApi(Api[GroupQuery, Any]):
    """The part of an OffsetFetch that reads one group.

    Up to v7 it returns the whole response. From v8 on it returns the group's entry in the response.

    Args:
        shards: the group shards.
        topics: the cluster's topics.
        authorizer: checks DESCRIBE on groups and topics; None allows all.
    """

    __slots__ = ("_authorizer", "_shards", "_topics")

    def __init__(self, shards: Shards[GroupShard], topics: TopicImage, authorizer: Authorizer | None) -> None:
        self._shards = shards
        self._topics = topics
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: GroupQuery) -> Any:
        """Checks permissions on group and topics, resolves topic ids, and reads the offsets in the group's shard."""
        if not self._may_see(context, ResourceType.GROUP, request.group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if request.requested is not None:
            by_id = context.api_version >= TOPIC_IDS_SINCE
            if by_id or self._authorizer is not None:
                self._check_topics(context, request, request.requested, by_id)
            else:
                request.lookups = [(topic_request, topic_request.name, None) for topic_request in request.requested]
        try:
            shard = self._shards.of(request.group_id)
        except KafkaError as error:
            return self.error(context, request, error.code)
        return shard.run(self, context, request)

    @property
    def slices(self) -> Slices | None:
        """The queues in which the node runs long work in slices; None if the node owns no shard."""
        return self._shards.slices

    def count(self, group: OffsetFetchRequestGroup) -> int:
        """Returns the number of offsets in the response for a group."""
        if group.topics is not None:
            return sum(len(topic.partition_indexes) for topic in group.topics)
        shard = self._shards.find(group.group_id)
        if shard is None:
            return 0
        return sum(len(partitions) for partitions in shard.machine.offsets.topics(group.group_id).values())

    def _check_topics(self, context: RequestContext, query: GroupQuery, topics: Sequence[Any], by_id: bool) -> None:
        for topic_request in topics:
            name: str = topic_request.name
            topic_id: bytes | None = None
            if by_id:
                topic = None if topic_request.topic_id == ZERO_UUID else self._topics.by_id(topic_request.topic_id)
                if topic is None:
                    query.refused.append(_refused_topic(context.api_version, topic_request, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                name, topic_id = topic.name, topic.topic_id
            if self._may_see(context, ResourceType.TOPIC, name):
                query.lookups.append((topic_request, name, topic_id))
            else:
                query.refused.append(
                    _refused_topic(context.api_version, topic_request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                )

    def _may_see(self, context: RequestContext, kind: ResourceType, name: str) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, Operation.DESCRIBE, kind, name)

    def decide(self, machine: GroupShard, context: RequestContext, query: GroupQuery) -> Any:
        """Reads the offsets. If they are not durable yet, the runtime delays the response until their commit."""
        group = machine.groups.get(query.group_id)
        offsets: Mapping[str, Mapping[int, OffsetAndMetadata]] = NO_TOPICS
        unstable: Mapping[str, Mapping[int, Any]] = {}
        if group is not None:
            code = group.validate_offset_fetch(query.member_id, query.member_epoch)
            if not code:
                offsets = machine.offsets.topics(query.group_id)
                if query.require_stable:
                    unstable = machine.offsets.pending_topics(query.group_id)
            elif code != ErrorCode.GROUP_ID_NOT_FOUND:  # a group that holds no offsets is treated as missing
                return self.error(context, query, code)
        version = context.api_version
        kind = _partition_type(version)
        topics = (
            self._all(context, query, offsets, unstable)
            if query.requested is None
            else [
                _topic(
                    version,
                    name,
                    topic_request.topic_id if version >= TOPIC_IDS_SINCE else ZERO_UUID,
                    fetch_responses(
                        kind,
                        topic_request.partition_indexes,
                        offsets.get(name, NO_PARTITIONS),
                        unstable.get(name, NO_PARTITIONS),
                        topic_id,
                    ),
                )
                for topic_request, name, topic_id in query.lookups
            ]
        )
        if query.refused:
            topics += query.refused
        return _group_response(version, query.group_id, topics, ErrorCode.NONE)

    def _all(
        self,
        context: RequestContext,
        query: GroupQuery,
        offsets: Mapping[str, Mapping[int, OffsetAndMetadata]],
        unstable: Mapping[str, Mapping[int, Any]],
    ) -> list[Any]:
        """Returns all topics for which the group has committed offsets, and which the client may DESCRIBE.

        From v10 on, topics without an id are left out.
        """
        version = context.api_version
        topics = []
        for name, partitions in offsets.items():
            if not self._may_see(context, ResourceType.TOPIC, name):
                continue
            topic_id = ZERO_UUID
            if version >= TOPIC_IDS_SINCE:
                topic = self._topics.by_name(name)
                if topic is None:
                    continue
                topic_id = topic.topic_id
            pending = unstable.get(name, NO_PARTITIONS)
            responses = fetch_responses(_partition_type(version), partitions, partitions, pending, None)
            topics.append(_topic(version, name, topic_id, responses))
        return topics

    def error(self, context: RequestContext, request: GroupQuery, code: ErrorCode, message: str | None = None) -> Any:
        """Returns a response with the code for the group, without topics; in v1, with the code for each partition."""
        version = context.api_version
        topics = []
        if version < GROUP_ERROR_SINCE:
            topics = [_refused_topic(version, topic_request, code) for topic_request in request.requested or ()]
        return _group_response(version, request.group_id, topics, code)


def _partition_type(version: int) -> Any:
    return OffsetFetchResponsePartitions if version >= SEVERAL_GROUPS_SINCE else OffsetFetchResponsePartition


def _no_offset(kind: Any, index: int, code: int) -> Any:
    return kind(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=code,
    )


def _topic(version: int, name: str, topic_id: bytes, partitions: list[Any]) -> Any:
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
    return OffsetFetchResponseTopic(name=name, partitions=partitions)


def _refused_topic(version: int, topic_request: Any, code: ErrorCode) -> Any:
    kind = _partition_type(version)
    topic_id = topic_request.topic_id if version >= TOPIC_IDS_SINCE else ZERO_UUID
    return _topic(
        version,
        topic_request.name,
        topic_id,
        [_no_offset(kind, index, code) for index in topic_request.partition_indexes],
    )


def _group_response(version: int, group_id: str, topics: list[Any], code: ErrorCode) -> Any:
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=code)
    return OffsetFetchResponse(topics=topics, error_code=code)


class OffsetFetchApi(Api[OffsetFetchRequest, OffsetFetchResponse]):
    """Handler of OffsetFetch requests. The fast path serves requests for one group if the response has no error.

    Args:
        shards: the group shards.
        topics: the cluster's topics, for their ids.
        authorizer: checks the permission to DESCRIBE groups and topics; None allows all.
    """

    key = ApiKey.OFFSET_FETCH
    request_type = OffsetFetchRequest
    response_type = OffsetFetchResponse
    versions = (1, 10)
    caches_requests = True

    __slots__ = ("_of_group", "fast", "fast_path")

    def __init__(self, shards: Shards[GroupShard], topics: TopicImage, authorizer: Authorizer | None = None) -> None:
        self._of_group = OffsetFetchOfGroupApi(shards, topics, authorizer)
        permissions = None
        if authorizer is not None:
            permissions = (authorizer.allowed, Operation.DESCRIBE, ResourceType.GROUP, ResourceType.TOPIC)
        self.fast_path = OffsetFetchFastPath(
            self, shards, topics, permissions, request=OffsetFetchRequest, response=OffsetFetchResponse
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: OffsetFetchRequest) -> Any:
        """Reads each group in its shard; an error of one group does not affect the others."""
        if context.api_version < SEVERAL_GROUPS_SINCE:
            query = GroupQuery(request.group_id, None, -1, request.topics, request.require_stable)
            return self._of_group.handle(context, query)
        groups = request.groups
        if len(groups) == 1:
            part = self._of_group.handle(context, self._query(groups[0], request))
            if not isinstance(part, Pending):
                return OffsetFetchResponse(groups=[part])
            return gather(self, context, request, [part], self._response)

        def join(parts: list[Any]) -> Any:
            return gather(self, context, request, parts, self._response)

        work, slices = self._parts(context, request), self._of_group.slices
        if slices is None:  # this node owns no shard, so every group gets an error
            return join(step(work, -1)[1])
        return slices.requests.run(self, context, request, work, join)

    def _parts(self, context: RequestContext, request: OffsetFetchRequest) -> Work:
        """Reads each group in its shard, one after the other; returns the responses to all groups.

        If a request repeats a group with all of its offsets, this method reads the offsets only once. Otherwise a
        client could cause thousands of reads with the few bytes of a repeated group id.

        Raises:
            KafkaError: POLICY_VIOLATION if there are too many offsets.
        """
        parts: list[Any] = []
        all_topics: dict[tuple[str, str | None, int], tuple[int, Any]] = {}
        total = 0
        for group in request.groups:
            key = group.group_id, group.member_id, group.member_epoch
            count, part = all_topics.get(key, (0, None)) if group.topics is None else (0, None)
            if part is None:
                count = self._of_group.count(group)
            total += count
            if total > MAX_OFFSETS:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"one request may fetch at most {MAX_OFFSETS} offsets of several groups"
                )
            if part is None:
                part = self._of_group.handle(context, self._query(group, request))
                if group.topics is None:
                    all_topics[key] = count, part
                yield GROUP_COST_US + count // OFFSETS_A_MICROSECOND
            parts.append(part)
        return parts

    @staticmethod
    def _query(group: OffsetFetchRequestGroup, request: OffsetFetchRequest) -> GroupQuery:
        return GroupQuery(group.group_id, group.member_id, group.member_epoch, group.topics, request.require_stable)

    @staticmethod
    def _response(groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
        return OffsetFetchResponse(groups=groups)

    def error(
        self, context: RequestContext, request: OffsetFetchRequest, code: ErrorCode, message: str | None = None
    ) -> OffsetFetchResponse:
        """Returns a response with the code for every group; for v1, for every partition."""
        if context.api_version < SEVERAL_GROUPS_SINCE:
            query = GroupQuery(request.group_id, None, -1, request.topics, request.require_stable)
            response: OffsetFetchResponse = self._of_group.error(context, query, code)
            return response
        groups = [self._of_group.error(context, self._query(group, request), code) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
