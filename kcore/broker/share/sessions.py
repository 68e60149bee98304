"""Share sessions (KIP-932): the partitions that a share consumer fetches, and the epoch of its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """A partition by topic id.

    Attributes:
        topic_id: the topic's id, 16 bytes.
        partition: the partition's number.
    """

    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    """The identity of a share session.

    Attributes:
        group_id: the share group.
        member_id: the member.
    """

    group_id: str
    member_id: str


class ShareSession:
    """One share session.

    Args:
        key: the group and the member.
        connection_id: the connection that opened the session.
        partitions: the partitions of the first request.

    Attributes:
        epoch: the epoch of the next request.
        partitions: the partitions in order of their addition; True: the next response includes the partition, because
            the request added it, or the last response had an error for it.
    """

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int, partitions: Iterable[TopicIdPartition]) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions = dict.fromkeys(partitions, True)

    def advance(self) -> None:
        """Moves to the epoch of the next request; the epoch after the highest one is 1."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def rotated(self, epoch: int) -> list[TopicIdPartition]:
        """Returns the partitions, beginning with another one at each epoch, so that each is served in turn."""
        partitions = list(self.partitions)
        at = epoch % len(partitions) if partitions else 0
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """The share sessions of a node.

    Attributes:
        by_key: the sessions by group and member, for compiled code. It is always the same dictionary.
        partitions: the number of partitions in all sessions.

    Args:
        max_sessions: the maximum number of sessions (`group.share.max.share.sessions`).
        max_partitions: the maximum number of partitions in all sessions together.
        release: called with each session that ends, except when its member opens a new one. It releases the records
            that the member has acquired.
    """

    __slots__ = ("_by_connection", "_max_partitions", "_max_sessions", "_release", "by_key", "partitions")

    def __init__(self, max_sessions: int, max_partitions: int, release: Callable[[ShareSession], None]) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self.partitions = 0
        self._release = release
        self.by_key: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def get(self, key: SessionKey) -> ShareSession | None:
        """Returns the session of a member, or None."""
        return self.by_key.get(key)

    def open(self, key: SessionKey, connection_id: int, partitions: list[TopicIdPartition]) -> ShareSession | None:
        """Opens a session in place of the member's earlier one; returns None if there are too many."""
        self._remove(key)
        if len(self.by_key) >= self._max_sessions or self.partitions + len(partitions) > self._max_partitions:
            return None
        session = self.by_key[key] = ShareSession(key, connection_id, partitions)
        self._by_connection.setdefault(connection_id, {})[key] = None
        self.partitions += len(session.partitions)
        return session

    def update(self, session: ShareSession, added: list[TopicIdPartition], removed: Iterable[TopicIdPartition]) -> bool:
        """Adds and removes partitions, as a request says; returns False, and adds none, if there are too many."""
        if self.partitions + len(added) > self._max_partitions:
            return False
        before = len(session.partitions)
        for partition in added:
            session.partitions.setdefault(partition, True)
        for partition in removed:
            session.partitions.pop(partition, None)
        self.partitions += len(session.partitions) - before
        return True

    def close(self, key: SessionKey) -> None:
        """Ends a member's session, if there is one, and releases its records."""
        session = self._remove(key)
        if session is not None:
            self._release(session)

    def connection_closed(self, connection_id: int) -> None:
        """Ends the sessions that a connection has opened."""
        for key in list(self._by_connection.get(connection_id, ())):
            self.close(key)

    def clear(self) -> None:
        """Forgets all sessions, without releasing records."""
        self.by_key.clear()
        self._by_connection.clear()
        self.partitions = 0

    def _remove(self, key: SessionKey) -> ShareSession | None:
        session = self.by_key.pop(key, None)
        if session is not None:
            self.partitions -= len(session.partitions)
            keys = self._by_connection[session.connection_id]
            del keys[key]
            if not keys:
                del self._by_connection[session.connection_id]
        return session
