"""Fetch (key 1), v4-18: reading batches, with fetch sessions (KIP-227), long polls and isolation levels (KIP-98).

v7 has sessions, v9 leader epochs (KIP-320), v12 last fetched epochs (KIP-595), v13 topic ids (KIP-516), v16 where the
leader is (KIP-951). Followers do not exist here: a replica id is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.delayed_fetch import DelayedFetch, FetchPending
from kcore.broker.fetch import FIRST_VERSION_WITH_LEADER, FetchItem, FetchParams, read, refused_early
from kcore.broker.fetch_session import (
    FINAL_EPOCH,
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchSessions,
    by_topic,
    open_context,
)
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint
from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.broker.fetch_session import FetchContext, FetchSession
    from kcore.broker.partition import Partition
    from kcore.broker.partitions import Partitions
    from kcore.clock import Now
    from kcore.protocol.authorizer import Authorizer
    from kcore.protocol.messages.fetch import PartitionData
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore_ext.purgatory import Purgatory

COMMIT_WAIT_MS = 30_000
"""How long a fetch waits for a commit that it must see; commits take milliseconds, this is for one that hangs."""

Told = list[tuple[str | None, bytes, "PartitionData"]]


class FetchApi(Api[FetchRequest, FetchResponse]):
    """Serves Fetch.

    Args:
        partitions: what can be read.
        purgatory: where long polls wait.
        sessions: the node's fetch sessions.
        now: the time of the round.
        cluster: this node, for answers that name the leader.
        max_bytes: `fetch.max.bytes`, the most bytes of any answer.
        authorizer: who may read what; None allows all.
    """

    __slots__ = ("_authorizer", "_cluster", "_max_bytes", "_node_id", "_now", "_partitions", "_purgatory", "sessions")

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
        max_bytes: int = 57_671_680,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._partitions = partitions
        self._purgatory = purgatory
        self._now = now
        self._cluster = cluster
        self._node_id = -1 if cluster is None else cluster.node_id
        self._max_bytes = max_bytes
        self._authorizer = authorizer
        self.sessions = sessions
        partitions.when_progress(self._progress)

    def _progress(self, partition: Partition) -> None:
        self._purgatory.check_and_complete(partition)

    def error(
        self, context: RequestContext, request: FetchRequest, code: ErrorCode, message: str | None = None
    ) -> FetchResponse:
        """An error of the whole request: at the top from v7 on, for each partition before."""
        if context.api_version >= 7:
            return FetchResponse(error_code=code)
        return FetchResponse(
            responses=by_topic(
                [
                    (topic.topic, topic.topic_id, refused_early(entry.partition, code))
                    for topic in request.topics
                    for entry in topic.partitions
                ]
            )
        )

    def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse | FetchPending:
        """Answers at once if there is enough to read, or anything wrong; else when there is, or time is up."""
        version = context.api_version
        fetch_context = None
        if request.session_epoch != FINAL_EPOCH or request.session_id:
            opened = open_context(request, version, self.sessions, self._partitions, self._now.now_ms)
            if isinstance(opened, ErrorCode):
                return FetchResponse(error_code=opened)
            fetch_context = opened
        max_bytes = request.max_bytes
        params = FetchParams(
            version,
            request.isolation_level,
            max_bytes if max_bytes < self._max_bytes else self._max_bytes,
            request.min_bytes,
            request.max_wait_ms,
            self._node_id,
        )
        if fetch_context is None or fetch_context.session is None:
            items = self._items(context, request, version)
        else:
            items = self._session_items(context, fetch_context.session)
        told, size, failed = self._read(items, params)
        unsettled = self._unsettled(items, size < max(params.min_bytes, 1) and not failed)
        if not unsettled and (size >= params.min_bytes or failed or params.max_wait_ms <= 0 or not items):
            return self._answer(fetch_context, context, told, items, failed)
        return self._park(context, request, items, params, fetch_context, unsettled)

    # ---- which partitions

    def _items(self, context: RequestContext, request: FetchRequest, version: int) -> list[FetchItem]:
        """The partitions of a request without a session, in its order."""
        items = []
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        ids, names = self._partitions.ids, self._partitions.names
        for topic in request.topics:
            found = ids.get(topic.topic_id) if by_id else names.get(topic.topic)
            error = ErrorCode.NONE
            name: str | None = topic.topic
            topic_id = topic.topic_id if by_id else ZERO_UUID
            if by_id:
                name = None if found is None else found.name
                if found is None:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
            if name is not None and self._authorizer is not None and not self._may_read(context, name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for entry in topic.partitions:
                partition = found.get(entry.partition) if found is not None and not error else None
                why = error
                if partition is None and not error:
                    why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                items.append(FetchItem(name, topic_id, entry, partition, why))
        return items

    def _session_items(self, context: RequestContext, session: FetchSession) -> list[FetchItem]:
        """All partitions of a session, in the session's order."""
        items = []
        for member in session.partitions.values():
            partition, error = None, ErrorCode.NONE
            if session.uses_topic_ids:
                found = self._partitions.ids.get(member.topic_id)
                if found is not None:
                    member.topic = found.name
                elif member.topic is None:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif member.topic in self._partitions.names:
                    # The name was resolved while the id was current; the topic was made again since.
                    error = ErrorCode.INCONSISTENT_TOPIC_ID
            else:
                found = self._partitions.names.get(member.topic or "")
            if member.topic is not None and self._authorizer is not None and not self._may_read(context, member.topic):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if not error:
                partition = found.get(member.partition) if found is not None else None
                if partition is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            items.append(FetchItem(member.topic, member.topic_id, member, partition, error))
        return items

    def _may_read(self, context: RequestContext, topic: str) -> bool:
        assert self._authorizer is not None
        return self._authorizer.allowed(context, Operation.READ, ResourceType.TOPIC, topic)

    # ---- reading

    def _read(self, items: list[FetchItem], params: FetchParams) -> tuple[Told, int, bool]:
        """Reads all partitions: (answers, bytes, whether any has an error or diverges)."""
        told: Told = []
        size = 0
        failed = False
        max_bytes = params.max_bytes
        for item in items:
            partition = item.partition
            if partition is None:
                failed = True
                data = refused_early(item.entry.partition, item.error)
            else:
                data = read(partition, item.entry, params, max_bytes - size, not size)
                records = data.records
                if records:
                    size += len(records)
                elif data.error_code or (item.entry.last_fetched_epoch >= 0 and data.diverging_epoch.epoch >= 0):
                    failed = True
            told.append((item.topic, item.topic_id, data))
        return told, size, failed

    @staticmethod
    def _unsettled(items: list[FetchItem], hungry: bool) -> list[tuple[Partition, int]]:
        """Appends under way that the answer has to show: with one replica, Kafka has them readable at once.

        What was appended without acks, perhaps just before on the same connection; and whatever there is for a poll
        that found too little.
        """
        unsettled = []
        for item in items:
            partition = item.partition
            if partition is not None and (
                partition.unacknowledged_end > partition.high_watermark or (hungry and partition.dirty)
            ):
                unsettled.append((partition, partition.log.end_offset))
        return unsettled

    def _park(
        self,
        context: RequestContext,
        request: FetchRequest,
        items: list[FetchItem],
        params: FetchParams,
        fetch_context: FetchContext | None,
        unsettled: list[tuple[Partition, int]],
    ) -> FetchResponse | FetchPending:
        pending = FetchPending(self, context, request)
        operation = DelayedFetch(self, pending, items, params, fetch_context, unsettled)
        wait_ms = params.max_wait_ms if params.max_wait_ms > 0 else COMMIT_WAIT_MS
        keys = dict.fromkeys(item.partition for item in items if item.partition is not None)
        if self._purgatory.try_complete_else_watch(operation, keys, self._now.now_ms + wait_ms):
            response: FetchResponse = pending.response
            return response
        operation.watch()
        pending.operation = operation
        return pending

    def read_again(
        self, context: RequestContext, items: list[FetchItem], params: FetchParams, fetch_context: FetchContext | None
    ) -> FetchResponse:
        """The answer of a fetch that waited, of what there is now."""
        told, _, failed = self._read(items, params)
        return self._answer(fetch_context, context, told, items, failed)

    def _answer(
        self,
        fetch_context: FetchContext | None,
        context: RequestContext,
        told: Told,
        items: list[FetchItem],
        failed: bool,
    ) -> FetchResponse:
        if fetch_context is None:
            response = FetchResponse(responses=by_topic(told))
        else:
            response = fetch_context.answer(told, [item.entry for item in items], self._now.now_ms)
        if failed and context.api_version >= FIRST_VERSION_WITH_LEADER:
            response.node_endpoints = self._endpoints(context, told)
        return response

    def _endpoints(self, context: RequestContext, told: Told) -> list[NodeEndpoint]:
        """Where this node is, if any answer names it as the leader to turn to."""
        if self._cluster is None or not any(data.current_leader.leader_id >= 0 for _, _, data in told):
            return []
        broker = self._cluster.broker(self._node_id, context.listener)
        if broker is None:
            return []
        return [NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)]
