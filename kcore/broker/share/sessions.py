"""Share sessions (KIP-932): the partitions that a share consumer fetches, and the epoch of its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore_ext.broker.share.share_fetch import SessionCore

if TYPE_CHECKING:
    from collections.abc import Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1


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


class Client(NamedTuple):
    """The client that owns share sessions. `ShareSessions` divides the limits of a node fairly among its clients.

    Attributes:
        host: the address of the client.
        connection_id: the number of the client's connection.
    """

    host: str
    connection_id: int


class ShareSession(SessionCore):
    """One share session.

    Args:
        key: the group and the member.
        client: the client that opened the session.
        partitions: the partitions of the first request.

    Attributes:
        epoch: the epoch of the next request.
        partitions: partition -> True if the next response must include the partition, because the request added it or
            the last response had an error for it. The order is the order of addition.
    """

    __slots__ = ("client", "key")

    def __init__(self, key: SessionKey, client: Client, partitions: Iterable[TopicIdPartition]) -> None:
        self.key = key
        self.client = client
        self.epoch = 1
        self.partitions = dict.fromkeys(partitions, True)

    def rotated(self, epoch: int) -> list[TopicIdPartition]:
        """Returns the partitions in an order that rotates: each epoch of the session begins with another partition."""
        partitions = list(self.partitions)
        at = epoch % len(partitions) if partitions else 0
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """The share sessions of a node.

    If a new session exceeds the limit of sessions, it replaces the oldest session of the client with the most sessions.
    If a new session exceeds the limit of partitions, it replaces the oldest session of the client with the most
    partitions. To find this client, the broker first chooses the address with the most sessions or partitions. Among
    the connections from this address, it then chooses the connection with the most sessions or partitions. If this
    connection itself opens the new session, the new session is refused. So a client with many sessions cannot exclude
    other clients.

    Attributes:
        by_key: the sessions by group and member. The dictionary is never replaced, because compiled code refers to it.
        partitions: the number of partitions in all sessions.

    Args:
        max_sessions: the maximum number of sessions (`group.share.max.share.sessions`).
        max_partitions: the maximum number of partitions in all sessions together.
        release: called with each session that ends, except when its member opens a new session. It releases the records
            that the member has acquired.
    """

    __slots__ = ("_by_connection", "_max_partitions", "_max_sessions", "_release", "by_key", "partitions")

    def __init__(self, max_sessions: int, max_partitions: int, release: Callable[[ShareSession], None]) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self.partitions = 0
        self._release = release
        self.by_key: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, ShareSession]] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def get(self, key: SessionKey) -> ShareSession | None:
        """Returns the session of a member, or None."""
        return self.by_key.get(key)

    def open(self, key: SessionKey, client: Client, partitions: Iterable[TopicIdPartition]) -> ShareSession | None:
        """Opens a session, which replaces an earlier session of the member.

        Returns:
            The session; None if there are too many sessions or partitions. The earlier session is then still open.
        """
        session = ShareSession(key, client, partitions)
        if not self._make_room(client, session.partitions, self.by_key.get(key)):
            return None
        self._remove(key)
        self.by_key[key] = session
        self._by_connection.setdefault(client.connection_id, {})[key] = session
        self.partitions += len(session.partitions)
        return session

    def update(self, session: ShareSession, added: list[TopicIdPartition], removed: Iterable[TopicIdPartition]) -> bool:
        """Adds and removes partitions. Returns False, and changes no partition, if there would be too many."""
        if added:
            new = [partition for partition in added if partition not in session.partitions]
            if new and not self._make_room(session.client, {**session.partitions, **dict.fromkeys(new)}, session):
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

    def _make_room(self, client: Client, partitions: Sized, replaced: ShareSession | None) -> bool:
        """Ends sessions of other clients until a new session fits into the limits.

        Args:
            client: the client of the new session.
            partitions: the partitions of the new session.
            replaced: the session that the new session replaces, or None.

        Returns:
            False if no other client has more sessions or partitions than `client` would have. No session is ended in
            this case.
        """
        sessions = len(self.by_key) + (replaced is None) - self._max_sessions
        total = self.partitions + len(partitions) - (0 if replaced is None else len(replaced.partitions))
        total -= self._max_partitions
        if sessions <= 0 and total <= 0:
            return True
        victims = self._victims(client, partitions, replaced, sessions, total)
        for victim in victims:
            self.close(victim)
        return bool(victims)

    def _victims(
        self, client: Client, partitions: Sized, replaced: ShareSession | None, sessions: int, total: int
    ) -> list[SessionKey]:
        """Chooses the sessions to end, among the sessions of the clients with the most sessions or partitions.

        The result is empty if the client of the new session itself has the most sessions or partitions.

        Args:
            client: the client of the new session.
            partitions: the partitions of the new session.
            replaced: the session that the new session replaces, or None.
            sessions: the number of sessions above the limit; 0 or less if the limit is not exceeded.
            total: the number of partitions above the limit; 0 or less if the limit is not exceeded.
        """
        weigh = _one if total <= 0 else len
        connections: dict[Client, int] = {client: weigh(partitions)}
        hosts: dict[str, int] = {client.host: weigh(partitions)}
        for each in self._by_connection.values():
            owner = next(iter(each.values())).client
            weight = len(each) if total <= 0 else sum([len(session.partitions) for session in each.values()])
            connections[owner] = connections.get(owner, 0) + weight
            hosts[owner.host] = hosts.get(owner.host, 0) + weight
        if replaced is not None:
            connections[replaced.client] -= weigh(replaced.partitions)
            hosts[replaced.client.host] -= weigh(replaced.partitions)
        victims: list[SessionKey] = []
        oldest: dict[Client, Iterator[ShareSession]] = {}
        while sessions > 0 or total > 0:
            # The client comes first in both tables, so `max` chooses it if others have as much.
            host = max(hosts, key=hosts.__getitem__)
            own = {each: weight for each, weight in connections.items() if each.host == host}
            most = max(own, key=own.__getitem__)
            if most == client:
                return []
            candidates = oldest.get(most)
            if candidates is None:
                candidates = oldest[most] = self._oldest(most, replaced)
            # As long as this client still has the most, the tables need not be searched again.
            next_host = max((weight for each, weight in hosts.items() if each != host), default=-1)
            next_own = max((weight for each, weight in own.items() if each != most), default=-1)
            while sessions > 0 or total > 0:
                victim = next(candidates, None)
                if victim is None:
                    return []
                victims.append(victim.key)
                hosts[host] -= weigh(victim.partitions)
                connections[most] -= weigh(victim.partitions)
                sessions -= 1
                total -= len(victim.partitions)
                if hosts[host] <= next_host or connections[most] <= next_own:
                    break
        return victims

    def _oldest(self, client: Client, replaced: ShareSession | None) -> Iterator[ShareSession]:
        """Yields the sessions of a client, the oldest first, except a session that is being replaced."""
        for session in self._by_connection.get(client.connection_id, {}).values():
            if session is not replaced:
                yield session

    def _remove(self, key: SessionKey) -> ShareSession | None:
        session = self.by_key.pop(key, None)
        if session is not None:
            self.partitions -= len(session.partitions)
            connection_id = session.client.connection_id
            keys = self._by_connection[connection_id]
            del keys[key]
            if not keys:
                del self._by_connection[connection_id]
        return session


def _one(partitions: Sized) -> int:
    """Returns 1: each session counts the same, however many partitions it has."""
    return 1
