"""Connections of one node or command to PostgreSQL: their settings and time limits.

kcore refuses a server whose timeline is older than the timeline of an earlier connection, because such a server is an
old primary.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from kcore.cluster.postgresql.arrays import ListDumper
from kcore.cluster.postgresql.schema import SCHEMA, require_version
from kcore.cluster.postgresql.server_checks import check_server
from kcore.cluster.postgresql.sqlstates import Reaction, log_error, reaction
from kcore.errors import ConfigError
from kcore.log.errors import LogClosedError, LogError, StoreRewoundError, StoreUnavailableError
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.errors import Diagnostic

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any]
Statement = tuple[LiteralString, Parameters | None]
"""The type of a statement for `Session`: a pair of the SQL text and its parameters."""
T = TypeVar("T")

LIBPQ_DEFAULTS: Final[dict[str, str]] = {
    "connect_timeout": "2",
    "tcp_user_timeout": "5000",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "target_session_attrs": "read-write",
}
"""Defaults of libpq's connection parameters, with which a node notices a dead server before the node's lease ends."""

SETTINGS: Final[dict[str, str]] = {
    "search_path": SCHEMA,
    "default_transaction_isolation": "read committed",
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "5s",
}
"""Settings of each session, because the defaults of a role or a database may be unsafe for kcore.

The server must notice a dead node, because the backend of the node may hold locks for which other nodes wait.
"""

MAX_IDLE_READERS: Final = 4
MAX_READERS: Final = 8
"""Maximum number of a node's connections for reads, and for other calls that have no connection of their own.

Commits, leases and notifications have separate connections.
"""
READER_WAIT_S: Final = 10.0
WATCH_PERIOD_S: Final = 0.1
LOCK_TIMEOUT: Final = "55P03"
"""The SQLSTATE of a statement that waited for a lock longer than `lock_timeout`."""
END_BACKENDS: Final[LiteralString] = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name LIKE %b
    AND pid <> pg_backend_pid() AND NOT pid = ANY(%b::bigint[])
"""
_INTERRUPTED: Final = frozenset({"01000", "57P01"})
"""SQLSTATEs of notices about a commit that was cancelled or terminated while it waited for a standby."""


class Session:
    """A connection that another thread can end.

    Attributes:
        connection: the connection, in autocommit.
        is_doubtful: True if PostgreSQL has reported that a commit did not wait for its standby. The server then reports
            success, although the commit is not replicated.
    """

    def __init__(self, connection: Connection[Row]) -> None:
        self.connection = connection
        self.is_doubtful = False
        self._is_interrupted = False  # True after an exception from outside the database has ended a transaction
        self.deadline = 0.0
        # A descriptor of its own: psycopg closes its own one after an error, and the number may belong to another file.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.add_notice_handler(self._notice)

    def _notice(self, diagnostic: Diagnostic) -> None:
        if diagnostic.sqlstate in _INTERRUPTED:
            self.is_doubtful = True

    def execute(self, text: LiteralString, parameters: Parameters | None = None, binary: bool = True) -> Cursor[Row]:
        """Runs one prepared statement; raises psycopg.Error."""
        return self.connection.execute(text, parameters, prepare=True, binary=binary)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs the statements of a `with` block in one transaction.

        After an interrupt or a lack of memory, psycopg may treat the transaction as open, although it has ended, and
        refuse every later transaction. `is_idle` is then False, so that the owner discards the session.
        """
        try:
            with self.connection.transaction():
                yield
        except psycopg.transaction.OutOfOrderTransactionNesting:
            self._is_interrupted = True
            raise
        except (psycopg.Error, LogError):
            raise
        except BaseException:
            self._is_interrupted = True
            raise

    def transact(self, statements: Sequence[Statement]) -> list[Cursor[Row]]:
        """Runs a transaction with one round trip for each statement; returns the cursors of the statements.

        If the network fails before the COMMIT, the server aborts the transaction after
        `idle_in_transaction_session_timeout`.
        """
        with self.transaction():
            return [self.execute(text, parameters) for text, parameters in statements]

    def transact_at_once(self, statements: Sequence[Statement]) -> list[Cursor[Row]]:
        """Sends a transaction in one round trip, COMMIT included, and returns the cursor of each statement.

        The first failed statement aborts the transaction. After an error the session has no open transaction, unless
        its connection is lost. If the network fails before the server has received all statements, the server waits for
        the others without a time limit, and keeps its locks: see `Sessions.end_lost_backends`.

        Raises:
            psycopg.Error: the error of the first failed statement, or of the connection.
        """
        connection = self.connection
        cursors: list[Cursor[Row]] = []
        first: psycopg.Error | None = None
        try:
            with connection.pipeline() as pipeline:
                try:
                    cursors.append(connection.execute("BEGIN"))
                    cursors += [self.execute(text, parameters) for text, parameters in statements]
                    cursors.append(connection.execute("COMMIT"))
                    pipeline.sync()
                except psycopg.Error as error:
                    first = error  # the end of the pipeline raises a second error: that it was aborted
        except psycopg.Error as error:
            first = first or error
        if first is not None:
            self._roll_back()
            raise first
        if cursors[-1].statusmessage != "COMMIT":  # not observed: an aborted pipeline raises the statement's error
            raise psycopg.OperationalError(f"COMMIT ended as {cursors[-1].statusmessage}")
        return cursors[1:-1]

    def _roll_back(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if not self.connection.closed:
                self.connection.rollback()

    @property
    def backend(self) -> int:
        """The process id of the connection's backend."""
        return self.connection.info.backend_pid

    @property
    def is_idle(self) -> bool:
        """True if the connection can be used for the next statement."""
        connection = self.connection
        if self._is_interrupted or connection.closed:
            return False
        return connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE

    def end(self) -> None:
        """Shuts the connection's socket down, so that a call that waits for the server fails at once.

        Any thread may call this method.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection. The server ends the backend when it notices that the connection is closed."""
        with contextlib.suppress(psycopg.Error, OSError):
            self.connection.close()
        self._socket.close()


class Watchdog:
    """The thread that ends sessions whose call takes too long.

    The server's time limits are not sufficient: if the network is broken, a call never returns. Besides, the server has
    no limit for a commit that waits for a standby. The thread does not cancel the call, because PostgreSQL reports
    success for a cancelled commit, although the commit is not replicated: see `Session.is_doubtful`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._watched: set[Session] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def limit(self, session: Session, timeout_s: float) -> Iterator[None]:
        """Ends `session` if the body of the `with` statement takes longer than `timeout_s`."""
        session.deadline = time.monotonic() + timeout_s
        with self._lock:
            if self._thread is None:
                self._thread = self._started()
            self._watched.add(session)
        try:
            yield
        finally:
            with self._lock:
                self._watched.discard(session)

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="kcore-postgresql-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # without the thread, a call would have no time limit
            raise StoreUnavailableError(
                f"PostgreSQL: cannot start the thread that enforces time limits: {error}"
            ) from error
        return thread

    def _run(self) -> None:
        while not self._stopped.wait(WATCH_PERIOD_S):
            with contextlib.suppress(MemoryError):
                self._end_late(time.monotonic())

    def _end_late(self, now: float) -> None:
        with self._lock:
            for session in self._watched:
                if session.deadline < now:
                    session.end()

    def stop(self) -> None:
        """Ends all watched calls and the thread."""
        self._stopped.set()
        with self._lock:
            for session in self._watched:
                session.end()


class Sessions:
    """The connections of one node or command, and the highest timeline that any of them has seen.

    Args:
        url: the URL of the database, with one or several hosts.
        durability: `fsync` if commits wait for the synchronous standbys; `os` if commits do not wait at all.
        timeout_s: the time limit of a call.

    Raises:
        ConfigError: the URL is malformed.
    """

    def __init__(self, url: str, durability: str = "fsync", timeout_s: float = 10.0) -> None:
        try:
            self._parameters = {**LIBPQ_DEFAULTS, **conninfo_to_dict(url)}
        except psycopg.ProgrammingError as error:
            raise ConfigError(
                f"the URL of the cluster's database is malformed: {' '.join(str(error).split())}"
            ) from None
        self.durability = durability
        self.timeout_s = timeout_s
        self.node_id = -1
        self.timeline = 0
        self.watchdog = Watchdog()
        self._lock = threading.Condition()
        self._idle: list[Session] = []
        self._open: set[Session] = set()
        self._readers = 0
        self._closed = False

    @property
    def host_count(self) -> int:
        """The number of hosts in the URL."""
        return len(str(self._parameters.get("host", "")).split(","))

    # -- connections

    def connect(
        self,
        role: str,
        durability: str = "fsync",
        check_schema: bool = True,
        prepare: Callable[[Session], None] | None = None,
    ) -> Session:
        """Opens a connection to the primary and checks it.

        libpq connects to the first host that accepts writes. An old primary that was started again accepts writes, too,
        so this method skips hosts with an old timeline.

        Args:
            role: the purpose of the connection, which PostgreSQL's views show to an operator.
            durability: `os` if commits on this connection do not wait until they are durable.
            check_schema: False before the schema exists.
            prepare: prepares statements on the new connection; None: prepares no statements.

        Raises:
            StoreUnavailableError: no primary can be reached.
            StoreRewoundError: the server has an older timeline than a server that was used before, so it is an old
                primary.
            LogError: kcore refuses the server's settings or the version of the schema.
        """
        rewound: StoreRewoundError | None = None
        for first in range(self.host_count):
            try:
                return self._connect(self._rotated(first), role, durability, check_schema, prepare)
            except StoreRewoundError as error:
                rewound = rewound or error
            except StoreUnavailableError:
                if rewound is None:
                    raise
        assert rewound is not None, "there is at least one host"
        raise rewound

    def _rotated(self, first: int) -> dict[str, Any]:
        """Returns the parameters with a rotated list of hosts, which begins with host number `first`."""
        parameters = dict(self._parameters)
        for name in ("host", "hostaddr", "port"):
            values = str(parameters.get(name, "")).split(",")
            if len(values) > 1:
                parameters[name] = ",".join(values[first:] + values[:first])
        return parameters

    def _connect(
        self,
        parameters: dict[str, Any],
        role: str,
        durability: str,
        check_schema: bool,
        prepare: Callable[[Session], None] | None,
    ) -> Session:
        name = "command" if self.node_id < 0 else str(self.node_id)
        parameters["application_name"] = f"kcore/{name}/{role}"
        try:
            connection = psycopg.connect(make_conninfo("", **parameters), autocommit=True)
        except psycopg.Error as error:
            raise StoreUnavailableError(f"cannot connect to PostgreSQL: {' '.join(str(error).split())}") from error
        try:
            session = Session(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):  # no descriptor is free
                raise StoreUnavailableError(f"cannot connect to PostgreSQL: {error}") from error
            raise
        try:
            with self.watchdog.limit(session, self.timeout_s):
                self._prepare(session, durability, check_schema)
                if prepare is not None:
                    prepare(session)
        except psycopg.Error as error:
            session.close()
            raise log_error(error, "preparing a connection") from error
        except BaseException:
            session.close()
            raise
        with self._lock:
            if not self._closed:
                self._open.add(session)
                return session
        session.close()
        raise LogClosedError("the store of the cluster is closed")

    def _prepare(self, session: Session, durability: str, check_schema: bool) -> None:
        connection = session.connection
        # Integers have one type, whatever their value: each combination of types would be a statement of its own.
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(list, ListDumper)
        timeline = check_server(connection)
        settings = {**SETTINGS, "synchronous_commit": "on" if durability == "fsync" else "off"}
        with connection.pipeline():
            for name, value in settings.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        with self._lock:
            if timeline < self.timeline:
                raise StoreRewoundError(
                    f"PostgreSQL: server {connection.info.host}:{connection.info.port} is an old primary with "
                    f"timeline {timeline}: a standby was promoted to timeline {self.timeline}. Stop the old primary"
                )
            self.timeline = timeline
        if check_schema:
            require_version(connection)

    def discard(self, session: Session) -> None:
        """Closes a connection."""
        with self._lock:
            self._open.discard(session)
        session.close()

    # -- readers

    def run(self, work: Callable[[Session], T], doing: str) -> T:
        """Calls `work` with a connection of the pool.

        Repeats the call once if the connection was lost while it was idle, or if a lock was not free in time.

        Args:
            work: the function; it may be called twice.
            doing: the operation, for messages.

        Raises:
            StoreUnavailableError: the server cannot be reached, or did not respond in time.
            LogError: the server refuses a statement.
        """
        with self._reader() as (session, is_new):
            try:
                return self._call(session, work)
            except psycopg.Error as error:
                was_idle = not is_new and reaction(error) is Reaction.LOST and time.monotonic() < session.deadline
                if not was_idle and error.sqlstate != LOCK_TIMEOUT:
                    raise log_error(error, doing) from error
                is_locked = error.sqlstate == LOCK_TIMEOUT
        fresh = self.connect("reader")
        try:
            if is_locked:
                self.end_lost_backends(fresh)
            return self._call(fresh, work)
        except psycopg.Error as error:
            raise log_error(error, doing) from error
        finally:
            self._give_back(fresh)

    def _call(self, session: Session, work: Callable[[Session], T]) -> T:
        with self.watchdog.limit(session, self.timeout_s):
            return work(session)

    @contextlib.contextmanager
    def _reader(self) -> Iterator[tuple[Session, bool]]:
        """Yields a connection of the pool, and True if the connection is new."""
        with self._lock:
            if not self._lock.wait_for(lambda: self._readers < MAX_READERS or self._closed, READER_WAIT_S):
                raise StoreUnavailableError(
                    f"PostgreSQL: all {MAX_READERS} connections of this node for reads are in use"
                )
            if self._closed:
                raise LogClosedError("the store of the cluster is closed")
            self._readers += 1
            session = self._idle.pop() if self._idle else None
        try:
            is_new = session is None
            if session is None:
                session = self.connect("reader")
            try:
                yield session, is_new
            finally:
                self._give_back(session)
        finally:
            with self._lock:
                self._readers -= 1
                self._lock.notify()

    def _give_back(self, session: Session) -> None:
        with self._lock:
            if session.is_idle and len(self._idle) < MAX_IDLE_READERS and not self._closed:
                self._idle.append(session)
                return
        self.discard(session)

    def end_lost_backends(self, session: Session) -> None:
        """Ends the backends of connections that this node has lost, because they may hold locks for which the node
        waits.

        After a failure of the network, the server may wait for further statements of a transaction. If a backend is
        ended during a commit, the commit is visible, even if no standby has it. Therefore, a reader that relies on such
        a commit first commits another transaction (`READ_BARRIER`).

        Args:
            session: a connection to run the statement on.

        Raises:
            psycopg.Error: the statement failed.
        """
        if self.node_id >= 0:
            with self._lock:
                open_backends = [each.backend for each in self._open]
            with self.watchdog.limit(session, self.timeout_s):
                session.execute(END_BACKENDS, (f"kcore/{self.node_id}/%", open_backends))

    # -- the end

    def close(self) -> None:
        """Closes all connections; calls that are waiting fail. Can be repeated."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            in_use = self._open.difference(idle)
            self._open = set()
            self._lock.notify_all()
        self.watchdog.stop()
        for session in in_use:
            session.end()  # the thread that uses it closes it
        for session in idle:
            session.close()
