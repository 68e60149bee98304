"""ShareFetch (key 78), v1-2: acknowledges records of a share group and acquires others (KIP-932).

v2 has acquire modes (KIP-1206) and renewals of locks (KIP-1222).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kcore.broker.data.delayed_fetch import MAX_AT_ONCE, MAX_WATCHED, DueFetches
from kcore.broker.data.fetch_budget import MOST_SHARED_BYTES, RESERVE_THRESHOLD_BYTES
from kcore.broker.share.delayed_share_fetch import DelayedShareFetch, RefusedLater, enough
from kcore.broker.share.fetch_sessions import session_of
from kcore.broker.share.requests import (
    FEW_PARTITIONS,
    LEADER_ERRORS,
    MAX_PARTITIONS,
    SUCCESS,
    Acknowledged,
    Acknowledgements,
    Results,
    ShareApi,
    find_partition,
)
from kcore.broker.share.sessions import INITIAL_EPOCH, SessionKey, TopicIdPartition
from kcore.broker.share.share_partition import AcquireParams
from kcore.broker.share.states import SharePartitionState
from kcore.errors import KafkaError
from kcore.log.errors import LogError
from kcore.process_logging import limited_logger
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kcore.runtime.pending import Pending
from kcore.runtime.sliced import SLICE_COST_US, step
from kcore.runtime.topic_permissions import PERMISSION_COST_US
from kcore_ext.broker.share.share_fetch import ShareFetchFastPath, ShareFetchPending

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kcore.broker.data.fetch_budget import FetchMemoryBudget
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import TopicPartitions
    from kcore.broker.share.sessions import ShareSession
    from kcore.broker.share.share_partition import SharePartition
    from kcore.broker.share.share_partitions import SharePartitions
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.sliced import Work

logger = limited_logger(__name__)

RECORD_LIMIT: Final = 1
"""The acquire mode in which the broker acquires at most `max_records` records (KIP-1206)."""

MAX_LOADS: Final = 500
"""Maximum number of share partitions that one request begins to load; further requests load the others.

A load takes about 50 µs. A load with many state batches, or with a search by time for its start offset, counts as
several loads.
"""

LOAD_BATCHES: Final = 25
"""Number of state batches that take as long to load as a share partition without state batches."""

MAX_DISCARDED_BYTES: Final = 8 << 20
"""Limit for the log batches that one request reads but does not deliver, in bytes; at this limit, the request stops
reading. Each batch counts as its size plus a constant (`examined_bytes`).
"""

FEW_FETCHED: Final = 1_000
"""Maximum number of partitions of a session that are fetched in one step; more are fetched in slices."""

STEP_COST_US: Final = 500
"""The cost after which a step of a long fetch ends, in microseconds."""
LOOK_UP_COST_US: Final = 2
"""The cost of looking up a topic or a partition, in microseconds."""
ACQUIRE_COST_US: Final = 3
"""The cost of acquiring records of a partition, without the cost of reading them, in microseconds."""
LOAD_COST_US: Final = 50
"""The cost of loading a share partition without stored state, in microseconds."""
READ_BYTES_A_MICROSECOND: Final = 1_000
"""Approximate speed at which records are read and copied, in bytes per microsecond."""

MAX_AWAITED_BYTES: Final = 1 << 20
"""Upper limit of a request's `min_bytes`, because each check of a waiting request may read this many bytes."""

_SERVER_ERROR: Final = ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
"""The response after an internal error, created in advance in case memory is short then. It is never modified."""


class _Run:
    """One request while it is being served.

    Attributes:
        context: the client and the API version of the request.
        request: the ShareFetch request.
        key: the group and the member.
        session: the session; None for the final request.
        full: True if the response has every partition of the session.
        refused: the partitions of the session that cannot be fetched, with their errors.
        share_partitions: the partitions that can be fetched, in the order in which they are served.
        results: the results of the acknowledgements.
    """

    __slots__ = ("context", "full", "key", "refused", "request", "results", "session", "share_partitions")

    def __init__(
        self, context: RequestContext, request: ShareFetchRequest, key: SessionKey, session: ShareSession | None
    ) -> None:
        self.context = context
        self.request = request
        self.key = key
        self.session = session
        self.full = request.share_session_epoch == INITIAL_EPOCH
        self.refused: dict[TopicIdPartition, ErrorCode] = {}
        self.share_partitions: dict[TopicIdPartition, SharePartition] = {}
        self.results: Results = {}


class ShareFetchApi(ShareApi[ShareFetchRequest, ShareFetchResponse]):
    """Handler of ShareFetch requests.

    The handler first writes the acknowledgements of a request. When they are durable, it acquires records for the same
    request. These may include records that the acknowledgements have released.

    Args:
        share_partitions: the share partitions of the node.
        enabled: returns True if share groups are enabled.
        memory_budget: the memory budget of responses.
        cluster: this node's endpoints.
        authorizer: decides about permissions; None allows all.
    """

    __slots__ = ("_due_fetches", "_memory_budget", "fast", "fast_path")

    key: ClassVar[ApiKey] = ApiKey.SHARE_FETCH
    request_type: ClassVar[type] = ShareFetchRequest
    response_type: ClassVar[type] = ShareFetchResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)
    differs: ClassVar[str] = (
        f"A request or session may have {MAX_PARTITIONS} partitions. A request with more gets INVALID_REQUEST, and "
        "a session with more gets SHARE_SESSION_LIMIT_REACHED. "
        f"A request loads the states of at most {MAX_LOADS} share partitions, or of fewer if the states are large; the "
        "next requests load the others. "
        f"A response has at most {MOST_SHARED_BYTES >> 20} MiB of records, or one batch. "
        "At the limit of sessions, a new session replaces the oldest session of the client that has the most sessions. "
        "At the limit of partitions, it replaces the oldest session of the client that has the most partitions. If "
        "this client itself opens the new session, kcore refuses the new session. At both limits, Kafka refuses every "
        "new session."
    )

    def __init__(
        self,
        share_partitions: SharePartitions,
        enabled: Callable[[], bool],
        memory_budget: FetchMemoryBudget,
        *,
        cluster: ClusterView | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(share_partitions, enabled, cluster=cluster, authorizer=authorizer)
        self._memory_budget = memory_budget
        self._due_fetches = DueFetches(share_partitions.partitions.slices, share_partitions.now)
        share_partitions.partitions.when_progress(self._progress)
        self.fast_path = ShareFetchFastPath(
            self,
            share_partitions,
            memory_budget,
            authorizer,
            (Operation.READ, ResourceType.GROUP, ResourceType.TOPIC),
            active=SharePartitionState.ACTIVE,
            codes=ErrorCode,
            failure=_SERVER_ERROR,
        )
        self.fast = self.fast_path.serve

    def _progress(self, partition: Partition) -> None:
        self.share_partitions.purgatory.check_and_complete(partition)

    def error(
        self, context: RequestContext, request: ShareFetchRequest, code: ErrorCode, message: str | None = None
    ) -> ShareFetchResponse:
        """Returns a response with a top-level error code."""
        return ShareFetchResponse(error_code=code, error_message=message)

    def handle(self, context: RequestContext, request: ShareFetchRequest) -> Any:
        """Applies the acknowledgements, and then acquires records or parks the request."""
        error = self.refusal(context, request)
        if error is ErrorCode.NONE and request.is_renew_ack and _requests_records(request):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return self.error(context, request, error)
        key = SessionKey(request.group_id or "", request.member_id or "")
        acknowledgements: Acknowledgements = [
            (TopicIdPartition(topic.topic_id, data.partition_index), data.acknowledgement_batches)
            for topic in request.topics
            for data in topic.partitions
            if data.acknowledgement_batches
        ]
        try:
            session = session_of(self.share_partitions, context, request, key, bool(acknowledgements))
        except KafkaError as refused:
            if refused.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                return self._refuse_later(context, request, refused.code)
            return self.error(context, request, refused.code)
        run = _Run(context, request, key, session)
        if not acknowledgements:
            return self._fetch(run, None)
        pending = ShareFetchPending(self, context, request)
        then = partial(self._acknowledged, run, pending)
        work = self.acknowledge(context, key, acknowledgements, request.is_renew_ack, then)
        slices = self.share_partitions.partitions.slices
        if len(acknowledgements) > FEW_PARTITIONS and slices.requests.enabled:
            slices.add(self._acknowledge_in_slices(work, pending))
        else:
            step(work, -1)
        return pending.response if pending.done else pending

    def _acknowledge_in_slices(self, work: Work, pending: ShareFetchPending) -> Iterator[None]:
        """Runs the acknowledgements of a long request in slices, even if its connection is closed before they end."""
        try:
            while not step(work, SLICE_COST_US)[0]:
                yield
        except Exception as error:
            if not pending.done:
                pending.complete(_SERVER_ERROR)
            self.fetch_failed(pending.context, error)

    def _acknowledged(self, run: _Run, pending: ShareFetchPending, results: Results) -> None:
        """Fetches for a request whose acknowledgements are complete, unless its connection is closed."""
        run.results = results
        if pending.gone:
            return
        try:
            response = self._fetch(run, pending)
        except Exception as error:
            response = _SERVER_ERROR
            try:  # noqa: SIM105 - `suppress` would need memory
                self.fetch_failed(pending.context, error)
            except Exception:
                pass  # no memory for the call: the response is more important
        if response is not pending and not pending.done:
            pending.complete(response)

    # ---- requests that the fast path has begun

    def fetch_after(
        self,
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
        errors: dict[TopicIdPartition, ErrorCode],
        pending: ShareFetchPending,
    ) -> Any:
        """Fetches for a request whose acknowledgements the fast path has written.

        Args:
            context: the client and the API version of the request.
            request: the ShareFetch request.
            session: the share session of the request.
            errors: the results of the acknowledgements.
            pending: the deferred response.

        Returns:
            The response, or `pending` if the request waits for records.
        """
        run = _Run(context, request, session.key, session)
        run.results = {
            TopicIdPartition(*key): Acknowledged(error, error.message) if error else SUCCESS
            for key, error in errors.items()
        }
        return self._fetch(run, pending)

    def fetch_failed(self, context: RequestContext, error: Exception) -> ShareFetchResponse:
        """Logs an internal error after durable acknowledgements. Returns the response of the request."""
        return self.failed_late(context, error, _SERVER_ERROR)

    def unreadable(self, share_partition: SharePartition, error: LogError) -> None:
        """Logs a share partition whose records cannot be read. The response to the client has KAFKA_STORAGE_ERROR."""
        logger.error(
            "share partition %r: cannot read the log: %s; the client gets KAFKA_STORAGE_ERROR; if this repeats, check "
            "the log with `kcore log verify`",
            share_partition,
            error,
        )

    def _refuse_later(self, context: RequestContext, request: ShareFetchRequest, code: ErrorCode) -> Pending:
        """Refuses a request after its wait time, so that the client does not repeat it immediately."""
        shares = self.share_partitions
        return RefusedLater(self, context, request, code, shares.wheel, shares.now.now_ms + request.max_wait_ms)

    # ---- fetching

    def _fetch(self, run: _Run, pending: ShareFetchPending | None) -> Any:
        """Fetches for a request whose acknowledgements are complete.

        Args:
            run: the request.
            pending: the deferred response to the request, if there already is one.

        Returns:
            The response, or a `Pending` for it.
        """
        session, request = run.session, run.request
        if session is None:
            self.share_partitions.sessions.close(run.key)
            return self._respond(run, {})
        if request.is_renew_ack or request.max_bytes <= 0:
            return self._respond(run, {})
        if len(session.partitions) <= FEW_FETCHED or not self.share_partitions.partitions.slices.requests.enabled:
            return step(self._fetch_in_steps(run, session, pending), -1)[1]
        if pending is None:
            pending = ShareFetchPending(self, run.context, request)
        self._add_slices(self._fetch_in_steps(run, session, pending), pending, pending)
        return pending

    def _add_slices(self, work: Work, fetch: ShareFetchPending, result: Pending) -> None:
        """Runs the work of a long fetch in slices, until its connection is closed.

        Args:
            work: returns the response, or a `Pending` if the fetch waits.
            fetch: the deferred response of the fetch.
            result: is completed with the response.
        """
        self.share_partitions.partitions.slices.add(self._slices_of(work, fetch, result))

    def _slices_of(self, work: Work, fetch: ShareFetchPending, result: Pending) -> Iterator[None]:
        try:
            while True:
                if fetch.gone:
                    work.close()
                    return
                done, response = step(work, SLICE_COST_US)
                if done:
                    break
                yield
        except Exception as error:
            response = self.fetch_failed(fetch.context, error)
        if not isinstance(response, Pending) and not result.done:
            result.complete(response)

    def _fetch_in_steps(self, run: _Run, session: ShareSession, pending: ShareFetchPending | None) -> Work:
        """Looks up the share partitions of a session, and acquires records or parks the fetch.

        Yields the cost of each step in microseconds.
        """
        request = run.request
        postponed = yield from self._look_up(run, session)
        waiting = list(run.share_partitions.values())
        min_bytes = min(request.min_bytes, request.max_bytes, MAX_AWAITED_BYTES)
        if run.refused or not waiting or request.max_wait_ms <= 0 or postponed or enough(waiting, min_bytes):
            return (yield from self._acquire(run))
        keys = [*dict.fromkeys(share_partition.partition for share_partition in waiting), *waiting]
        shares = self.share_partitions
        if len(waiting) > MAX_AT_ONCE and shares.purgatory.num_watched + len(keys) > MAX_WATCHED:
            return (yield from self._acquire(run))
        if len(waiting) > FEW_FETCHED:
            yield SLICE_COST_US  # the fetch is watched in a slice of its own
        if pending is None:
            pending = ShareFetchPending(self, run.context, request)
        elif pending.gone:
            return pending
        return self._park(
            run,
            pending,
            DelayedShareFetch(
                pending, waiting, min_bytes, partial(self._acquire_parked, run, pending), self._due_fetches
            ),
            keys,
        )

    def _park(self, run: _Run, pending: ShareFetchPending, operation: DelayedShareFetch, keys: list[Any]) -> Any:
        """Parks a fetch until there are enough records; returns its response if there are enough already."""
        shares = self.share_partitions
        if shares.purgatory.try_complete_else_watch(operation, keys, shares.now.now_ms + run.request.max_wait_ms):
            return pending.response if pending.done else pending
        try:
            operation.watch()
            pending.operation = operation
        except BaseException:
            operation.forget()  # the client gets an error now
            raise
        return pending

    def _acquire_parked(self, run: _Run, pending: ShareFetchPending) -> Any:
        """Acquires records for a fetch that was parked; returns the response, or a `Pending` for a long response."""
        work = self._acquire(run)
        if len(run.share_partitions) <= FEW_FETCHED or not self.share_partitions.partitions.slices.requests.enabled:
            return step(work, -1)[1]
        result = Pending(self, run.context, run.request, parked=True)
        self._add_slices(work, pending, result)
        return result

    def _look_up(self, run: _Run, session: ShareSession) -> Generator[int, None, bool]:
        """Finds the session's share partitions, and begins to load some of the share partitions that are not loaded.

        Yields the cost of each step in microseconds. Returns True if share partitions remain that the next request has
        to load.
        """
        loads, postponed, group_id = 0, False, run.key.group_id
        topics: dict[bytes, TopicPartitions | ErrorCode] = {}
        cost = 0
        for key in session.rotated(run.request.share_session_epoch):
            if cost >= STEP_COST_US:
                yield cost
                cost = 0
            cost += LOOK_UP_COST_US
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = self.find_topic(run.context, key.topic_id)
                cost += LOOK_UP_COST_US if self._authorizer is None else PERMISSION_COST_US
            partition = topic if isinstance(topic, ErrorCode) else find_partition(topic, key.partition)
            if isinstance(partition, ErrorCode):
                run.refused[key] = partition
                continue
            share_partition = self.share_partitions.get(group_id, key)
            if share_partition is None:
                if postponed:
                    continue
                weight = self._load_weight(group_id, key)
                postponed = loads > 0 and loads + weight > MAX_LOADS
                if postponed:
                    continue
                loads += weight
                share_partition = self.share_partitions.loaded(group_id, partition)
                cost += LOAD_COST_US * weight
            run.share_partitions[key] = share_partition
        yield cost
        return postponed

    def _load_weight(self, group_id: str, key: TopicIdPartition) -> int:
        """Returns the cost of loading a share partition, as a multiple of the cost without stored state."""
        shares = self.share_partitions
        state = shares.persister.stored(group_id, key.topic_id, key.partition)
        if (state is None or state.start_offset == -1) and shares.settings_of(group_id).reset.startswith("by_duration"):
            return MAX_LOADS  # the search may read a long log, and decompress 16 MB of records
        return 1 if state is None else 1 + len(state.batches) // LOAD_BATCHES

    def _acquire(self, run: _Run) -> Work:
        """Acquires records of each partition in turn, and makes the response; yields the cost of each step.

        If the session ends between two slices, the node has released the session's records. The method then acquires no
        further records, and returns an error.
        """
        request, sessions = run.request, self.share_partitions.sessions
        params = AcquireParams(run.key.member_id, request.batch_size, request.share_acquire_mode == RECORD_LIMIT)
        fetched: dict[TopicIdPartition, PartitionData] = {}
        records_left, bytes_left = request.max_records, min(request.max_bytes, self._memory_budget.most_shared_bytes)
        size = examined_bytes = 0
        cost = STEP_COST_US if len(run.share_partitions) > FEW_FETCHED else 0
        for key, share_partition in run.share_partitions.items():
            if cost >= STEP_COST_US:
                yield cost
                cost = 0
                if sessions.get(run.key) is not run.session:
                    return self.error(run.context, request, ErrorCode.SHARE_SESSION_NOT_FOUND)
            cost += ACQUIRE_COST_US
            data = PartitionData(partition_index=key.partition)
            fetched[key] = data
            error = _error_of(share_partition)
            active = error is ErrorCode.NONE and share_partition.state is SharePartitionState.ACTIVE
            discarded_bytes = examined_bytes - size
            has_room = records_left > 0 and (not size or size < bytes_left) and discarded_bytes < MAX_DISCARDED_BYTES
            if active and has_room:
                try:
                    delivery = share_partition.acquire_records(params, records_left, max(bytes_left - size, 1))
                except LogError as failure:
                    self.unreadable(share_partition, failure)
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    records_left -= delivery.acquired
                    examined_bytes += share_partition.examined_bytes
                    size += len(delivery.records)
                    cost += share_partition.examined_bytes // READ_BYTES_A_MICROSECOND
                    data.records = delivery.records
                    data.acquired_records = [
                        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in delivery.ranges
                    ]
            data.error_code = error
        if size > RESERVE_THRESHOLD_BYTES:
            self._memory_budget.reserve(size)
        yield cost
        if len(fetched) > FEW_FETCHED:
            yield SLICE_COST_US  # the response is made in a slice of its own
            if sessions.get(run.key) is not run.session:
                return self.error(run.context, request, ErrorCode.SHARE_SESSION_NOT_FOUND)
        return self._respond(run, fetched)

    # ---- responses

    def _respond(self, run: _Run, fetched: dict[TopicIdPartition, PartitionData]) -> ShareFetchResponse:
        """Makes the response from the fetched partitions and the results of the acknowledgements.

        A response within a session leaves out partitions without records, error, acknowledgement or other changes.
        """
        session = run.session
        included: dict[TopicIdPartition, PartitionData] = {}
        for key, error in run.refused.items():
            included[key] = PartitionData(partition_index=key.partition, error_code=error)
        news = {} if session is None else session.partitions
        included |= {
            key: data
            for key, data in fetched.items()
            if run.full or data.acquired_records or data.error_code or news.get(key)
        }
        for key, data in included.items():
            if key in news:
                news[key] = bool(data.error_code)
        for key, result in run.results.items():
            partition_data = included.get(key)
            if partition_data is None:
                partition_data = included[key] = PartitionData(partition_index=key.partition)
            partition_data.acknowledge_error_code = result.error
            partition_data.acknowledge_error_message = result.message
        topics: dict[bytes, list[PartitionData]] = {}
        for key, data in included.items():
            if data.error_code in LEADER_ERRORS:
                self._name_leader(run, key, data)
            topics.setdefault(key.topic_id, []).append(data)
        errors = {data.error_code for data in included.values()}
        endpoint = self.leader_endpoint(run.context, errors) if any(errors) else None
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_ms(run.key.group_id),
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[]
            if endpoint is None
            else [NodeEndpoint(node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)],
        )

    def _name_leader(self, run: _Run, key: TopicIdPartition, data: PartitionData) -> None:
        """Adds the partition's leader to its response."""
        topic = self.share_partitions.partitions.ids.get(key.topic_id)
        partition = None if topic is None else topic.get(key.partition)
        if partition is not None and self._cluster is not None:
            data.current_leader = LeaderIdAndEpoch(leader_id=self._cluster.node_id, leader_epoch=partition.leader_epoch)


def _requests_records(request: ShareFetchRequest) -> bool:
    """Returns True if a request sets a limit for records, or a time to wait for them. A request that renews locks must
    set neither (KIP-1222).
    """
    return bool(request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms)


def _error_of(share_partition: SharePartition) -> ErrorCode:
    """Returns the error of a share partition for a fetch; NONE while the share partition is active or loading."""
    if share_partition.partition.closed:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if share_partition.state in (SharePartitionState.ACTIVE, SharePartitionState.INITIALIZING):
        return ErrorCode.NONE
    return share_partition.error
