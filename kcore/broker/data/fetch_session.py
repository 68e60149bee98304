"""Fetch sessions (KIP-227): a consumer names its partitions once; later requests and responses contain only changes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.broker.metadata.names import MAX_NAME_LENGTH
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.broker.fetch_reader import SessionPartition, update_members

if TYPE_CHECKING:
    from kcore.broker.data.partitions import Partitions
    from kcore.protocol.messages.fetch import FetchRequest, PartitionData
    from kcore_ext.broker.fetch_reader import FetchItem

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""Time in ms for which a session must be unused before a new session may evict it.

A new session may also evict a smaller session that is older than this time.
"""
FIRST_VERSION_WITH_TOPIC_IDS = 13
MAX_UNREADABLE = 10_000
"""Maximum number of partitions in a session that do not exist or that the client may not read.

Every response of the session contains all of them, even if the request is short. A client with more of them cannot
create a session, and names its partitions in each request.
"""
MAX_PARTITIONS = 500_000
"""The default of `kcore.max.fetch.session.partitions`."""
NO_CONNECTION = 0
"""The connection id of requests without a socket. Their sessions end only by eviction."""

PartitionName = tuple[str | bytes, int]
"""A partition in a Fetch request: its topic, and its number. From version 13 on, the topic's id replaces its name."""


def next_epoch(epoch: int) -> int:
    """Returns the next epoch of a session; it wraps to 1, because 0 would request a new session."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchSession:
    """One fetch session.

    Attributes:
        session_id: 1 to 2^31 - 1.
        uses_topic_ids: True if its requests are v13 or later.
        partitions: the partitions by name, in the order in which they are served.
        epoch: the epoch that the next request of the session must have.
        created_ms: the monotonic time of the creation, in ms.
        last_used_ms: the monotonic time of the last request, in ms.
        connection_id: the connection that created it; the session ends with the connection.
        principal: the principal of the client that created it; other clients cannot use or close the session.
        evictable_size: the number of partitions at the last request, if the session was older than `EVICTION_MS` then;
            else -1. A larger new session may evict this session only if the number is not -1.
    """

    __slots__ = (
        "connection_id",
        "created_ms",
        "epoch",
        "evictable_size",
        "last_used_ms",
        "partitions",
        "principal",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        uses_topic_ids: bool,
        partitions: dict[PartitionName, SessionPartition],
        now_ms: int,
        connection_id: int = NO_CONNECTION,
        principal: str = "",
    ) -> None:
        self.session_id = session_id
        self.principal = principal
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.connection_id = connection_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.evictable_size = -1

    def update(self, request: FetchRequest, partitions: Partitions) -> bool:
        """Adds, changes and removes partitions by an incremental request.

        Returns:
            False if a name is longer than a topic's name may be; the session must then be closed.
        """
        by_id = self.uses_topic_ids
        known = partitions.ids if by_id else partitions.names
        legal = update_members(self.partitions, request.topics, by_id, known, MAX_NAME_LENGTH)
        for forgotten in request.forgotten_topics_data:
            key = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                self.partitions.pop((key, index), None)
        return legal


class FetchSessions:
    """All fetch sessions of a node. Their number and their partitions are limited.

    Args:
        max_slots: the maximum number of sessions, `max.incremental.fetch.session.cache.slots`; 0 disables sessions.
        random_id: returns a number in 1 to 2^31 - 1.
        max_partitions: the maximum number of partitions of all sessions together, `kcore.max.fetch.session.partitions`.
        max_session_partitions: the maximum number of partitions of one session, `kcore.max.request.elements`. If a
            session is lost, the client must name all its partitions in one request.

    Attributes:
        partitions: the number of partitions in all sessions.
    """

    __slots__ = (
        "_evictable",
        "_of_connections",
        "_random_id",
        "_sessions",
        "evictions",
        "max_partitions",
        "max_session_partitions",
        "max_slots",
        "partitions",
    )

    def __init__(
        self,
        max_slots: int,
        random_id: Callable[[], int],
        max_partitions: int = MAX_PARTITIONS,
        max_session_partitions: int = MAX_PARTITIONS,
    ) -> None:
        self.max_slots = max_slots
        self.max_partitions = max_partitions
        self.max_session_partitions = max_session_partitions
        self.evictions = 0
        self.partitions = 0
        self._random_id = random_id
        # In order of last use: a used session moves to the end.
        self._sessions: dict[int, FetchSession] = {}
        # Heap of (size, id) of sessions old enough for eviction by size; outdated entries are skipped when popped.
        self._evictable: list[tuple[int, int]] = []
        self._of_connections: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Returns the session with this id, or None."""
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        """Removes the session with this id, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self.partitions -= len(session.partitions)
        of_connection = self._of_connections.get(session.connection_id)
        if of_connection is not None:
            of_connection.discard(session_id)
            if not of_connection:
                del self._of_connections[session.connection_id]

    def connection_closed(self, connection_id: int) -> None:
        """Removes the sessions that a connection created, because the client starts a new session after a reconnect."""
        for session_id in tuple(self._of_connections.get(connection_id, ())):
            self.close(session_id)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Marks the session as used now."""
        session.last_used_ms = now_ms
        sessions = self._sessions
        del sessions[session.session_id]
        sessions[session.session_id] = session
        size = len(session.partitions)
        if now_ms - session.created_ms > EVICTION_MS and size != session.evictable_size:
            session.evictable_size = size
            heapq.heappush(self._evictable, (size, session.session_id))

    def update(self, session: FetchSession, request: FetchRequest, partitions: Partitions) -> bool:
        """Changes the partitions of a session by an incremental request.

        Returns:
            False if the session was closed: a topic's name is too long, or the session or all sessions together have
            more partitions than allowed.
        """
        before = len(session.partitions)
        try:
            legal = session.update(request, partitions)
        finally:
            after = len(session.partitions)
            self.partitions += after - before
        most = self.max_session_partitions
        if legal and (after <= before or (after <= most and self.partitions <= self.max_partitions)):
            return True
        self.close(session.session_id)
        return False

    def create(
        self,
        partitions: dict[PartitionName, SessionPartition],
        uses_topic_ids: bool,
        now_ms: int,
        connection_id: int = NO_CONNECTION,
        principal: str = "",
    ) -> int:
        """Creates a session if there is capacity, or if another can be evicted; returns its id, else 0."""
        size = len(partitions)
        if size > min(self.max_partitions, self.max_session_partitions):
            return NO_SESSION
        while len(self._sessions) >= self.max_slots or self.partitions + size > self.max_partitions:
            if not self._evict(size, now_ms):
                return NO_SESSION
        session_id = self._random_id()
        while session_id in self._sessions:
            session_id = self._random_id()
        self._sessions[session_id] = FetchSession(
            session_id, uses_topic_ids, partitions, now_ms, connection_id, principal
        )
        self.partitions += size
        if connection_id != NO_CONNECTION:
            self._of_connections.setdefault(connection_id, set()).add(session_id)
        return session_id

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evicts the least recently used session if it was unused for `EVICTION_MS`.

        Otherwise, evicts the smallest of the sessions older than `EVICTION_MS`, if it has fewer than `size` partitions.
        Returns True if a session was evicted.
        """
        sessions = self._sessions
        oldest = next(iter(sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self.close(oldest.session_id)
            self.evictions += 1
            return True
        evictable = self._evictable
        while evictable:
            smallest, session_id = evictable[0]
            session = sessions.get(session_id)
            if session is None or session.evictable_size != smallest:
                heapq.heappop(evictable)
                continue
            if size <= smallest:
                return False
            heapq.heappop(evictable)
            self.close(session_id)
            self.evictions += 1
            return True
        return False


class FetchContext:
    """The session of one Fetch request. The request may use a session, create a session, or do neither.

    Args:
        sessions: the node's sessions.
        session: the request's session; None: no session.
        creates_session: True if the response creates a session.
        epoch: the request's session epoch.
        uses_topic_ids: True if the request's version names topics by id.
        connection_id: the connection of the request.
        principal: the principal of the client.
    """

    __slots__ = ("connection_id", "creates_session", "epoch", "principal", "session", "sessions", "uses_topic_ids")

    def __init__(
        self,
        sessions: FetchSessions,
        session: FetchSession | None,
        creates_session: bool,
        epoch: int,
        uses_topic_ids: bool,
        connection_id: int = NO_CONNECTION,
        principal: str = "",
    ) -> None:
        self.connection_id = connection_id
        self.principal = principal
        self.sessions = sessions
        self.session = session
        self.creates_session = creates_session
        self.epoch = epoch
        self.uses_topic_ids = uses_topic_ids

    @property
    def session_id(self) -> int:
        """The id of the request's session; 0 without a session."""
        return NO_SESSION if self.session is None else self.session.session_id

    @property
    def overtaken(self) -> bool:
        """True if a later request of the same session has arrived, while this request waited."""
        return self.session is not None and self.session.epoch != next_epoch(self.epoch)

    def create_session(self, items: list[FetchItem], responses: list[PartitionData], now_ms: int) -> int:
        """Creates a session from a request and its response, if requested and possible; returns its id, else 0.

        Args:
            items: the request's partitions.
            responses: the response of each partition.
            now_ms: monotonic ms.
        """
        if not self.creates_session or not _bounded(items):
            return NO_SESSION
        partitions: dict[PartitionName, SessionPartition] = {}
        for item, data in zip(items, responses, strict=True):
            member = SessionPartition.of(item, self.uses_topic_ids)
            member.high_watermark = data.high_watermark
            member.local_log_start_offset = data.log_start_offset
            partitions[member.name] = member
        return self.sessions.create(partitions, self.uses_topic_ids, now_ms, self.connection_id, self.principal)


def _bounded(items: list[FetchItem]) -> bool:
    """Checks that a request has few partitions that cannot be read (`MAX_UNREADABLE`), and that their topics' names are
    not too long.

    A session stores these partitions for its lifetime, and each response includes them.
    """
    unreadable = 0
    for item in items:
        if item.partition is None:
            unreadable += 1
            if item.topic is not None and len(item.topic) > MAX_NAME_LENGTH:
                return False
    return unreadable <= MAX_UNREADABLE


def open_context(
    request: FetchRequest,
    version: int,
    sessions: FetchSessions,
    partitions: Partitions,
    now_ms: int,
    connection_id: int = NO_CONNECTION,
    principal: str = "",
) -> FetchContext | ErrorCode:
    """Reads the session fields of a request. A session of another principal counts as unknown.

    Returns:
        The context, or the error code of the whole response: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR.
    """
    session_id, epoch = request.session_id, request.session_epoch
    uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        session = sessions.get(session_id)
        if session is not None and session.principal == principal:
            sessions.close(session_id)
        return FetchContext(sessions, None, epoch == INITIAL_EPOCH, epoch, uses_topic_ids, connection_id, principal)
    session = sessions.get(session_id)
    if session is None or session.principal != principal:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.uses_topic_ids != uses_topic_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    if not sessions.update(session, request, partitions):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not session.partitions:
        sessions.close(session_id)
        return FetchContext(sessions, None, False, epoch, uses_topic_ids)
    sessions.touch(session, now_ms)
    session.epoch = next_epoch(epoch)
    return FetchContext(sessions, session, False, epoch, uses_topic_ids)
