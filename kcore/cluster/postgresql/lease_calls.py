"""Transactions for leases and nodes, on one connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection

from kcore.cluster.postgresql import leases as sql
from kcore.cluster.postgresql.sessions import Session, Sessions
from kcore.cluster.postgresql.sqlstates import Reaction, log_error, reaction

T = TypeVar("T")
Sql = Connection[Any]

CALL_TIMEOUT_S: Final = 3.0
"""The time limit of a call for leases. It is shorter than the limit of commits, because a late renewal is of no use."""


class LeaseCalls:
    """A connection for calls of a `PostgresClusterStore`, opened at the first call. One thread at a time may use it.

    Args:
        sessions: opens the connection.
        role: the purpose of the connection, which PostgreSQL's views show to an operator.
    """

    __slots__ = ("_role", "_session", "_sessions")

    def __init__(self, sessions: Sessions, role: str) -> None:
        self._sessions = sessions
        self._role = role
        self._session: Session | None = None

    def run(self, work: Callable[[Sql], T], doing: str) -> T:
        """Runs one transaction; repeats it once if the connection was lost while it was idle.

        Args:
            work: runs the statements.
            doing: the purpose, for errors.

        Raises:
            LogError: the transaction failed.
        """
        is_new = self._session is None
        try:
            return self._transact(work)
        except psycopg.Error as error:
            lost = reaction(error) is Reaction.LOST
            if not lost or is_new:
                raise log_error(error, doing) from error
        try:
            return self._transact(work)
        except psycopg.Error as error:
            raise log_error(error, doing) from error

    def _transact(self, work: Callable[[Sql], T]) -> T:
        session = self._session
        if session is None:
            session = self._session = self._sessions.connect(self._role)
            with self._sessions.watchdog.limit(session, CALL_TIMEOUT_S):
                self._note_timeline(session)
        try:
            with self._sessions.watchdog.limit(session, CALL_TIMEOUT_S), session.transaction():
                result = work(session.connection)
            if session.is_doubtful:
                raise psycopg.OperationalError("PostgreSQL ended a commit's wait for its synchronous standby")
        except psycopg.Error:
            if session.is_doubtful or not session.is_idle:
                self.drop()
            raise
        except BaseException:
            if not session.is_idle:
                self.drop()
            raise
        return result

    def drop(self) -> None:
        """Closes the connection; the next call opens another one."""
        session, self._session = self._session, None
        if session is not None:
            self._sessions.discard(session)

    def _note_timeline(self, session: Session) -> None:
        """Extends all leases at the first connection after a promotion, because the new primary has another clock."""
        connection = session.connection
        try:
            with session.transaction():
                if connection.execute(sql.NEW_TIMELINE, {"timeline": self._sessions.timeline}).fetchone():
                    connection.execute(sql.EXTEND_ALL)
        except BaseException:
            self.drop()  # the next connection repeats it
            raise
