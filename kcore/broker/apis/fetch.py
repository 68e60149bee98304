"""Fetch (key 1), v4-18: reads batches, with fetch sessions (KIP-227), long polls and isolation levels (KIP-98).

v7 adds sessions, v9 leader epochs (KIP-320), v12 last fetched epochs (KIP-595), v13 topic ids (KIP-516), v16 the
endpoint of the leader (KIP-951). Partitions have no followers, so the replica id is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.broker.data.client_quotas import CONSUMER_BYTE_RATE
from kcore.broker.data.delayed_fetch import MAX_AT_ONCE, MAX_WATCHED, DelayedFetch, DueFetches, FetchPending
from kcore.broker.data.fetch import FIRST_VERSION_WITH_LEADER, READ_COMMITTED, read, refused_early
from kcore.broker.data.fetch_budget import RESERVE_THRESHOLD_BYTES, FetchMemoryBudget
from kcore.broker.data.fetch_session import (
    FINAL_EPOCH,
    FIRST_VERSION_WITH_TOPIC_IDS,
    MAX_UNREADABLE,
    FetchSessions,
    open_context,
)
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from kcore.runtime.api import Api
from kcore.runtime.topic_permissions import FEW_TOPICS, TopicPermissions
from kcore_ext.broker.fetch_reader import FetchItem, FetchParams, FetchReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.data.fetch_session import FetchContext, FetchSession
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions
    from kcore.clock import Now
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.sliced import Work
    from kcore_ext.broker.fetch_reader import Reading, SessionPartition
    from kcore_ext.runtime.purgatory import Purgatory

COMMIT_WAIT_MS = 30_000
"""The timeout of a fetch with `max_wait_ms` 0 that must wait for a commit. A commit takes milliseconds, so the
timeout expires only if a commit hangs.
"""


class FetchApi(Api[FetchRequest, FetchResponse]):
    """Handler of Fetch requests.

    Args:
        partitions: the node's partitions.
        purgatory: contains the parked fetches (long polls).
        sessions: the node's fetch sessions.
        now: the clock, which the driver reads once for each round of requests.
        cluster: this node's endpoints, for responses that name the leader.
        memory_budget: the memory budget of responses.
        authorizer: decides about READ of each topic; None allows all.
        quotas: measures the rates of consumers; None: there are no quotas.

    Attributes:
        sessions: the node's fetch sessions.
        memory_budget: the memory budget of responses.
        due_fetches: checks if parked fetches can be completed.
        reader: reads partitions; `tests.reference.fetch_reader.ReferenceReader` defines its behaviour.
    """

    __slots__ = (
        "_authorizer",
        "_cluster",
        "_node_id",
        "_now",
        "_partitions",
        "_purgatory",
        "_quotas",
        "due_fetches",
        "memory_budget",
        "reader",
        "sessions",
    )

    key = ApiKey.FETCH
    request_type = FetchRequest
    response_type = FetchResponse
    versions = (4, 18)
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(
        self,
        partitions: Partitions,
        purgatory: Purgatory,
        sessions: FetchSessions,
        now: Now,
        *,
        cluster: ClusterView | None = None,
        memory_budget: FetchMemoryBudget,
        authorizer: Authorizer | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._partitions = partitions
        self._purgatory = purgatory
        self.due_fetches = DueFetches(partitions.slices, now)
        self._now = now
        self._cluster = cluster
        self._node_id = -1 if cluster is None else cluster.node_id
        self._authorizer = authorizer
        self.sessions = sessions
        self.memory_budget = memory_budget
        self.reader = FetchReader(
            read=read,
            refused=refused_early,
            partition_data=PartitionData,
            topic_response=FetchableTopicResponse,
            errors=ErrorCode,
        )
        partitions.when_progress(self._progress)
        self._quotas: ClientQuotas | None = None  # None while no consumer has a quota
        if quotas is not None:
            quotas.observe(lambda: self._follow(quotas))

    def _follow(self, quotas: ClientQuotas) -> None:
        """Starts or stops measuring rates. The rates of consumers are measured while any consumer has a quota."""
        self._quotas = quotas if quotas.has(CONSUMER_BYTE_RATE) else None

    def _progress(self, partition: Partition) -> None:
        self._purgatory.check_and_complete(partition)

    def error(
        self, context: RequestContext, request: FetchRequest, code: ErrorCode, message: str | None = None
    ) -> FetchResponse:
        """Makes the response to a failed request.

        From v7 on, the response has one error code for the whole request; before v7, one for each partition.
        """
        if context.api_version >= 7:
            return FetchResponse(error_code=code)
        items = [
            FetchItem(topic.topic, topic.topic_id, entry) for topic in request.topics for entry in topic.partitions
        ]
        results = [refused_early(item.index, code) for item in items]
        return FetchResponse(responses=self.reader.by_topic(items, results))

    def handle(self, context: RequestContext, request: FetchRequest) -> Any:
        """Responds immediately if the partitions have enough data or an error; else parks the fetch.

        A parked fetch ends when there is enough data or an error, or at its timeout. If the request has many topics,
        this method first checks the client's permissions in slices.
        """
        version = context.api_version
        fetch_context = None
        if request.session_epoch != FINAL_EPOCH or request.session_id:
            opened = open_context(
                request,
                version,
                self.sessions,
                self._partitions,
                self._now.now_ms,
                context.connection_id,
                context.principal,
            )
            if isinstance(opened, ErrorCode):
                return FetchResponse(error_code=opened)
            fetch_context = opened
        if self._authorizer is None:
            return self._decide(context, request, fetch_context, None)
        session = None if fetch_context is None else fetch_context.session
        readable = TopicPermissions(self._authorizer, context, Operation.READ)
        if (len(request.topics) if session is None else len(session.partitions)) <= FEW_TOPICS:
            return self._decide(context, request, fetch_context, readable.__getitem__)
        work = self._steps(context, request, fetch_context, readable)
        # The partitions of a session may have few topics, so the first slice does not wait for other long requests.
        return self._partitions.slices.requests.run(self, context, request, work, eager=session is not None)

    def _steps(
        self,
        context: RequestContext,
        request: FetchRequest,
        fetch_context: FetchContext | None,
        readable: TopicPermissions,
    ) -> Work:
        """Checks the permissions in steps, then handles the request. Returns the response, or a `Pending` for it."""
        session = None if fetch_context is None else fetch_context.session
        yield from readable.steps(self._topic_names(request, context.api_version, session))
        if fetch_context is not None and fetch_context.overtaken:
            return _overtaken(fetch_context)
        return self._decide(context, request, fetch_context, readable.__getitem__)

    def _topic_names(self, request: FetchRequest, version: int, session: FetchSession | None) -> list[str | None]:
        """Lists the topics of a request or session, None for unknown ids."""
        if session is not None:
            return [member.topic for member in session.partitions.values()]
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            return [topic.topic for topic in request.topics]
        found = (self._partitions.ids.get(topic.topic_id) for topic in request.topics)
        return [None if topic is None else topic.name for topic in found]

    def _decide(
        self,
        context: RequestContext,
        request: FetchRequest,
        fetch_context: FetchContext | None,
        may_read: Callable[[str], bool] | None,
    ) -> FetchResponse | FetchPending:
        """Reads the partitions; responds or parks the fetch."""
        version, max_wait_ms = context.api_version, request.max_wait_ms
        session = None if fetch_context is None else fetch_context.session
        max_bytes, most_bytes = request.max_bytes, self.memory_budget.most_bytes
        if self._quotas is not None:
            # A response of more bytes than the quota allows in all windows would be throttled forever.
            most_bytes = min(most_bytes, self._quotas.burst(CONSUMER_BYTE_RATE, context))
        params = FetchParams(
            version,
            request.isolation_level == READ_COMMITTED,
            max_bytes if max_bytes < most_bytes else most_bytes,  # in this hot path, `min` would take 3 % of a Fetch
            request.min_bytes,
            max_wait_ms,
            self._node_id,
        )
        reader = self.reader
        items: list[Any]
        if session is not None:
            items = self._session_items(session, may_read)
        elif version >= FIRST_VERSION_WITH_TOPIC_IDS:
            items = reader.requested(request.topics, True, self._partitions.ids, may_read)
        else:
            items = reader.requested(request.topics, False, self._partitions.names, may_read)
        reading = reader.read(items, params, session is not None)
        size, failed, pending_appends = reading.size_bytes, reading.failed, None
        if reading.dirty:
            pending_appends = reader.pending_appends(items, not failed and (size < params.min_bytes or not size))
        enough = size >= params.min_bytes or reading.long
        if not pending_appends and (enough or failed or max_wait_ms <= 0 or not items):
            return self._respond(fetch_context, context, items, reading)
        return self._park(context, request, items, params, fetch_context, pending_appends or [])

    # ---- partitions of the request

    def _session_items(self, session: FetchSession, may_read: Callable[[str], bool] | None) -> list[SessionPartition]:
        """Looks up all partitions of a session, in the session's order."""
        members, find = session.partitions.values(), self._find_by_id if session.uses_topic_ids else self._find_by_name
        return self.reader.current(members, find, may_read)

    def _find_by_id(self, member: SessionPartition) -> None:
        """Looks up a partition of a session by topic id. Each request repeats the lookup, because topics can change
        between requests.
        """
        partitions = self._partitions.ids.get(member.topic_id)
        member.partition = None
        if partitions is not None:
            member.topic = partitions.name
            member.partition = partitions.get(member.index)
        if member.partition is not None:
            member.error = ErrorCode.NONE
        elif partitions is None and member.topic is None:
            member.error = ErrorCode.UNKNOWN_TOPIC_ID
        elif partitions is None and self._partitions.get(member.topic or "", member.index) is not None:
            # The topic was deleted and created again: the session has the name with the old topic id.
            member.error = ErrorCode.INCONSISTENT_TOPIC_ID
        else:
            member.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _find_by_name(self, member: SessionPartition) -> None:
        """Looks up a partition of a session by topic name. Each request repeats the lookup, because topics can change
        between requests.
        """
        member.partition = self._partitions.get(member.topic or "", member.index)
        member.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if member.partition is None else ErrorCode.NONE

    def _park(
        self,
        context: RequestContext,
        request: FetchRequest,
        items: list[Any],
        params: FetchParams,
        fetch_context: FetchContext | None,
        pending_appends: list[tuple[Partition, int]],
    ) -> FetchResponse | FetchPending:
        pending = FetchPending(self, context, request)
        operation = DelayedFetch(self, pending, items, params, fetch_context, pending_appends)
        count = len(operation.partitions)
        if count > MAX_AT_ONCE and self._purgatory.num_watched + count > MAX_WATCHED:
            operation.force_complete()
            return pending.response if pending.done else pending
        wait_ms = params.max_wait_ms if params.max_wait_ms > 0 else COMMIT_WAIT_MS
        if self._purgatory.try_complete_else_watch(operation, operation.partitions, self._now.now_ms + wait_ms):
            response: FetchResponse = pending.response
            return response
        try:
            operation.watch()
        except BaseException:
            operation.cancel()  # the client gets an error now
            raise
        pending.operation = operation
        return pending

    def read_again(
        self,
        context: RequestContext,
        items: list[FetchItem],
        params: FetchParams,
        fetch_context: FetchContext | None,
    ) -> FetchResponse:
        """Makes the response of a parked fetch from the current state."""
        params.max_bytes = min(params.max_bytes, self.memory_budget.most_bytes)
        sparse = fetch_context is not None and fetch_context.session is not None
        return self._respond(fetch_context, context, items, self.reader.read(items, params, sparse))

    def _respond(
        self, fetch_context: FetchContext | None, context: RequestContext, items: list[Any], reading: Reading
    ) -> FetchResponse:
        results = reading.results
        if self._quotas is not None:
            throttled = self._throttled(self._quotas, fetch_context, context, reading.size_bytes)
            if throttled is not None:
                return throttled
        if reading.size_bytes > RESERVE_THRESHOLD_BYTES:
            self.memory_budget.reserve(reading.size_bytes)
        if fetch_context is None:
            response = FetchResponse(responses=self.reader.by_topic(items, results))
        elif fetch_context.session is None:
            session_id = fetch_context.create_session(items, results, self._now.now_ms)
            response = FetchResponse(session_id=session_id, responses=self.reader.by_topic(items, results))
        else:
            session = fetch_context.session
            if fetch_context.overtaken:
                response = _overtaken(fetch_context)
            elif reading.failed and sum(item.partition is None for item in items) > MAX_UNREADABLE:
                # The client then sends a full fetch, which names all partitions.
                self.sessions.close(session.session_id)
                response = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            else:
                changed = self.reader.news(items, results, session.partitions)
                response = FetchResponse(session_id=session.session_id, responses=changed)
        if reading.failed and context.api_version >= FIRST_VERSION_WITH_LEADER:
            response.node_endpoints = self._endpoints(context, results)
        return response

    def _throttled(
        self, quotas: ClientQuotas, fetch_context: FetchContext | None, context: RequestContext, size_bytes: int
    ) -> FetchResponse | None:
        """Counts the bytes of a response for the client's quota.

        Returns None if the client is within its quota, else an empty response. An empty response opens no session, and
        the bytes do not count, because the client sends the fetch again.
        """
        if fetch_context is not None and fetch_context.overtaken:
            return None
        throttle_ms = quotas.charge(CONSUMER_BYTE_RATE, context, size_bytes)
        if not throttle_ms:
            return None
        quotas.refund(CONSUMER_BYTE_RATE, context, size_bytes)
        return FetchResponse(
            throttle_time_ms=throttle_ms, session_id=0 if fetch_context is None else fetch_context.session_id
        )

    def _endpoints(self, context: RequestContext, results: list[PartitionData | None]) -> list[NodeEndpoint]:
        """Returns this node's endpoint if a partition's response names this node as the leader."""
        named = any(data is not None and data.current_leader.leader_id >= 0 for data in results)
        if self._cluster is None or not named:
            return []
        broker = self._cluster.broker(self._node_id, context.listener)
        if broker is None:
            return []
        return [NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)]


def _overtaken(fetch_context: FetchContext) -> FetchResponse:
    """Makes the response to a parked request after a later request of the same session has arrived."""
    return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=fetch_context.session_id)
