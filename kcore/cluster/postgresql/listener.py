"""The connection that waits for notifications of the database."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import psycopg

from kcore.log.errors import LogClosedError, LogError

if TYPE_CHECKING:
    from kcore.cluster.postgresql.sessions import Session, Sessions

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
STOP_CHECK_S: Final = 5.0


class Listener:
    """The thread that calls a function for each notification of channel `kcore`, and after each connection.

    Notifications are lost while there is no connection, so the function is called after each reconnection.
    """

    def __init__(self, sessions: Sessions, callback: Callable[[], None]) -> None:
        self._sessions = sessions
        self._callback = callback
        self._stopped = threading.Event()
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._run, name="kcore-postgresql-listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except LogClosedError:
                return
            except (psycopg.Error, LogError) as error:
                if not self._stopped.is_set():
                    logger.info(
                        "cluster: lost the connection through which PostgreSQL notifies this node of changes: %s; "
                        "until the node has connected again, it only polls the database",
                        error,
                    )
            except Exception:
                logger.exception(
                    "cluster: the listener for PostgreSQL's notifications failed; kcore starts it again after %g s, "
                    "and only polls the database meanwhile; please report the error",
                    RETRY_S,
                )
            self._stopped.wait(RETRY_S)

    def _listen(self) -> None:
        session = self._session = self._sessions.connect("listener")
        try:
            # LISTEN before the callback reads the tables: a change in between is notified.
            with self._sessions.watchdog.limit(session, self._sessions.timeout_s):
                session.execute("LISTEN kcore")
            self._callback()
            while not self._stopped.is_set():
                for _ in session.connection.notifies(timeout=STOP_CHECK_S, stop_after=1):
                    self._callback()
        finally:
            self._session = None
            self._sessions.discard(session)

    def stop(self) -> None:
        """Ends the thread. The function is not called afterwards."""
        self._stopped.set()
        session = self._session
        if session is not None:
            session.end()
        if self._thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):
                self._thread.join(STOP_CHECK_S)
