"""The writing connection of a node: stores write sets, and resolves writes whose outcome is unknown."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Final, NoReturn

import psycopg

from kcore.cluster.postgresql import statements as sql
from kcore.cluster.postgresql.appending import append, prepare_append
from kcore.cluster.postgresql.sqlstates import Reaction, describe, log_error, reaction
from kcore.cluster.postgresql.write_transactions import NodeIdentity, WriteTransaction
from kcore.log.batch_header import last_offset
from kcore.log.errors import (
    CorruptLogError,
    FencedWriteError,
    StoreRewoundError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from kcore.log.write_set import PartitionMeta, WriteSet
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore.cluster.postgresql.sessions import Row, Session, Sessions

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4
"""Maximum number of attempts to store a write set. The writer repeats it after temporary errors that stored nothing."""
UNPREPARED: Final = "26000"
"""The SQLSTATE of a statement that was not prepared on this connection, or that was deallocated."""
FIRST_PAUSE_S: Final = 0.01
"""The pause before the second attempt; it doubles with each attempt."""


def new_token() -> int:
    """Returns a random session token. 0 is the token of fenced nodes."""
    return secrets.randbits(62) + 1


class TransactionWriter:
    """The writer of one incarnation of a node, which stores write sets one at a time, each in a database transaction.

    After a lost connection the outcome of a transaction is unknown: the server may have stored it, may store it later,
    or may never have received it. `resolve_write` determines the outcome. It first changes the node's session token.
    This change waits until the server has ended the interrupted transaction, and fences a transaction that the server
    has not received yet. Then `resolve_write` reads the result, in a transaction whose commit waits for the synchronous
    standbys.

    Args:
        sessions: the connections of the node.
        identity: the incarnation.
        token: the session token with which the incarnation has registered.
    """

    def __init__(self, sessions: Sessions, identity: NodeIdentity, token: int) -> None:
        self._sessions = sessions
        self._identity = identity
        self._token = token
        # All tokens that the server may have: a `resolve_write` that lost its connection may have stored a newer one.
        self._tokens = [token]
        self._session: Session | None = None
        self._uncertain_transaction: WriteTransaction | None = None
        self._last_number = 0  # the number of the last transaction that did more than append
        self._ends: dict[int, int] = {}  # acknowledged end offsets, by partition number
        self._lock = Lock()

    # -- write transactions

    def write(self, write_set: WriteSet) -> None:
        """Stores a write set, as `SharedStorage.write` describes."""
        with self._lock:
            if self._uncertain_transaction is not None:
                raise UnknownOutcomeError("the outcome of the previous commit is not known yet")
            transaction = WriteTransaction(write_set, self._identity, self._last_number + 1)
            pause_s = FIRST_PAUSE_S
            for attempt in range(1, ATTEMPTS + 1):
                error = self._attempt(transaction)
                if error is None:
                    return
                if attempt == ATTEMPTS:
                    raise log_error(error, "storing a commit") from error
                time.sleep(pause_s * (1 + secrets.randbelow(100) / 100))
                pause_s *= 2

    def _attempt(self, transaction: WriteTransaction) -> psycopg.Error | None:
        """Sends a transaction. Returns None if it is stored, or an error after which the caller may repeat it.

        Raises:
            FencedWriteError: this node does not lead all partitions of the write set.
            UnknownOutcomeError: the connection was lost.
            LogError: the server refuses the transaction.
        """
        session = self._connected()
        self._uncertain_transaction = transaction
        try:
            with self._sessions.watchdog.limit(session, self._sessions.timeout_s):
                is_stored = self._send(session, transaction)
        except psycopg.Error as error:
            return self._failed(session, transaction, error)
        except BaseException:
            # After an interrupt or a lack of memory, the statement may have been sent nevertheless.
            self._lose(session)
            raise
        if session.is_doubtful:
            self._lose(session)
            raise UnknownOutcomeError(
                "PostgreSQL ended a commit's wait for its synchronous standby, which may not have the commit"
            )
        if not is_stored:
            self._uncertain_transaction = None
            self._refuse(session, transaction)
        self._stored(transaction)
        return None

    def _stored(self, transaction: WriteTransaction) -> None:
        """Records that a transaction is stored."""
        for sealed in transaction.write_set.partitions:
            if sealed.batches:
                self._ends[sealed.number] = sealed.end_offset
        if transaction.number:
            self._last_number = transaction.number
        transaction.write_set.is_durable = True
        self._uncertain_transaction = None

    def _send(self, session: Session, transaction: WriteTransaction) -> bool:
        """Sends a transaction. Returns False if `APPEND` has stored no batch, because a check of leadership failed."""
        if transaction.number:
            session.transact_at_once(transaction.statements(self._token))
            return True
        parameters, count = transaction.append_parameters(self._token)
        return append(session, parameters) == count

    def _failed(self, session: Session, transaction: WriteTransaction, error: psycopg.Error) -> psycopg.Error:
        """Returns `error` if a repetition of the transaction may succeed; otherwise raises an exception."""
        kind = reaction(error)
        if session.connection.closed or kind in (Reaction.LOST, Reaction.WRONG_SERVER):
            self._lose(session)
            raise UnknownOutcomeError(f"PostgreSQL, storing a commit: {describe(error)}") from error
        # The server has reported the failure of a statement, which aborts the transaction.
        self._uncertain_transaction = None
        if kind is Reaction.RETRY:
            return error
        if error.sqlstate == UNPREPARED:
            return self._prepare_again(session, error)
        if kind in (Reaction.FENCED, Reaction.DUPLICATE):
            self._refuse(session, transaction, error)
        raise log_error(error, "storing a commit") from error

    def _prepare_again(self, session: Session, error: psycopg.Error) -> psycopg.Error:
        """Prepares `APPEND` again, because psycopg deallocates all prepared statements after a ROLLBACK."""
        try:
            with self._sessions.watchdog.limit(session, self._sessions.timeout_s):
                prepare_append(session)
        except psycopg.Error as failure:
            self._drop(session)
            raise log_error(failure, "preparing a connection") from failure
        return error

    def _refuse(self, session: Session, transaction: WriteTransaction, error: psycopg.Error | None = None) -> NoReturn:
        """Raises the error that explains why the server refused a transaction."""
        try:
            with self._sessions.watchdog.limit(session, self._sessions.timeout_s):
                node_id = self._identity.node_id
                rows = session.execute(sql.FENCED_NODE, (node_id, [self._token])).fetchall()
                if rows[0][0]:
                    raise FencedWriteError(f"node {node_id} is fenced", node=True)
                refused = [int(number) for (number,) in session.execute(sql.NOT_OWNED, transaction.checks()).fetchall()]
        except psycopg.Error:
            # The server has refused the transaction, and any of its partitions may be the reason.
            refused = list(transaction.owned)
            self._drop(session)
        keys = transaction.keys()
        changes = transaction.write_set.cluster
        if not refused and error is not None and changes is not None:
            changed = [new.key for new in changes.created] + [move.key for move in changes.moved]
            raise CorruptLogError(
                changed[0] if changed else keys[0], None, "the leaders in the store differ from the metadata log"
            ) from error
        if not refused and error is not None:
            raise log_error(error, "storing a commit") from error
        partitions = [keys[number] for number in refused or transaction.owned]
        raise FencedWriteError(
            f"node {self._identity.node_id} does not lead {', '.join(map(repr, partitions[:5]))}", partitions
        ) from error

    # -- the connection

    def _connected(self) -> Session:
        if self._session is None:
            self._session = self._connect()
        return self._session

    def _connect(self) -> Session:
        return self._sessions.connect("writer", self._sessions.durability, prepare=prepare_append)

    def _drop(self, session: Session) -> None:
        self._session = None
        self._sessions.discard(session)

    def _lose(self, session: Session) -> None:
        """Closes the connection of a transaction with an unknown outcome."""
        self._drop(session)
        logger.warning(
            "cluster: node %s lost its connection to PostgreSQL during a commit. The node connects again and reads "
            "whether the commit is stored; until then, requests that write get retriable errors. If this repeats, "
            "check the database and the network to it",
            self._identity.node_id,
        )

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            if self._session is not None:
                self._drop(self._session)

    # -- unknown outcomes

    def resolve_write(self) -> None:
        """Determines the outcome of an interrupted transaction, as `SharedStorage.resolve_write` describes."""
        with self._lock:
            transaction = self._uncertain_transaction
            if transaction is None:
                return
            if self._session is not None:  # an interrupt came before the connection was closed
                self._drop(self._session)
            session = self._connect()
            try:
                is_stored = self._read_outcome_in_time(session, transaction)
                if session.is_doubtful:
                    raise StoreUnavailableError(
                        "PostgreSQL ended a commit's wait for its synchronous standby, which may not have the commit"
                    )
            except psycopg.Error as error:
                self._sessions.discard(session)
                raise log_error(error, "reading the outcome of a commit") from error
            except BaseException:
                self._sessions.discard(session)
                raise
            self._session = session
            self._token = self._tokens[-1]
            self._tokens = [self._token]
            if is_stored:
                self._stored(transaction)
            self._uncertain_transaction = None
            logger.info(
                "cluster: node %s is connected to PostgreSQL again; the commit that the lost connection interrupted is "
                "%s; the node accepts writes again",
                self._identity.node_id,
                "stored" if is_stored else "not stored",
            )

    def _read_outcome_in_time(self, session: Session, transaction: WriteTransaction) -> bool:
        timeout_s = self._sessions.timeout_s
        try:
            with self._sessions.watchdog.limit(session, timeout_s):
                return self._read_outcome(session, transaction)
        except psycopg.errors.LockNotAvailable:
            # The interrupted transaction still holds its locks: the server waits for the rest of it, or for a standby.
            self._sessions.end_lost_backends(session)
            with self._sessions.watchdog.limit(session, timeout_s):
                return self._read_outcome(session, transaction)

    def _read_outcome(self, session: Session, transaction: WriteTransaction) -> bool:
        """Fences the interrupted transaction and reads whether it is stored, in one synchronous transaction."""
        node_id, epoch = self._identity
        token = new_token()
        bases = transaction.expected_bases()
        self._tokens.append(token)
        connection = session.connection
        with session.transaction():
            connection.execute("SET LOCAL synchronous_commit = on")
            tokens = self._tokens[:-1]
            row = session.execute(sql.NEW_SESSION, (token, node_id, epoch, tokens)).fetchone()
            if row is None:
                # The node is fenced, so the transaction cannot be stored any more; it may have been stored before.
                row = session.execute(sql.LAST_NUMBER, (node_id, epoch)).fetchone()
            parameters = {
                **transaction.checks(),
                "numbers": [number for number, _ in bases],
                "epochs": [transaction.owned[number] for number, _ in bases],
                "bases": [base for _, base in bases],
            }
            rows = session.execute(sql.STORED_BATCHES, parameters).fetchall() if bases else []
            expected = {**self._ends, **dict(bases)}
            ends = session.execute(sql.OWNED_ENDS, (list(expected), node_id, epoch)).fetchall()
            session.execute(sql.READ_BARRIER, (node_id,))
        stored_number = None if row is None else int(row[0])
        if stored_number is not None and stored_number < self._last_number:
            raise StoreRewoundError(
                f"PostgreSQL has the commits of node {node_id} only up to number {stored_number}, but number "
                f"{self._last_number} was acknowledged: a failover lost commits, or a backup was restored"
            )
        self._require_ends(transaction, expected, ends)
        return stored_number == transaction.number if transaction.number else _has_batches(transaction, rows)

    def _require_ends(self, transaction: WriteTransaction, expected: dict[int, int], rows: list[Row]) -> None:
        """Raises StoreRewoundError if a partition that this node still leads ends before an acknowledged offset."""
        lost = []
        for number, meta, last in rows:
            end = max(PartitionMeta.decode(meta).log_start_offset, 0 if last is None else last + 1)
            if end < expected[number]:
                lost.append((number, end))
        if lost:
            keys = transaction.keys()
            number, end = lost[0]
            raise StoreRewoundError(
                f"PostgreSQL: {keys.get(number, f'partition number {number}')} ends at {end}, and offsets below "
                f"{expected[number]} were acknowledged: commits were lost in a failover, or a backup was restored",
                [keys[number] for number, _ in lost if number in keys],
            )
        owned = {number for number, _, _ in rows}
        self._ends = {number: end for number, end in self._ends.items() if number in owned}


def _has_batches(transaction: WriteTransaction, rows: list[Row]) -> bool:
    """Returns True if the store has the batches of a transaction that only appends.

    The transaction has stored all of its batches or none. If this node still leads a partition, the function checks the
    end of this partition, because no other node could write to it. Otherwise the function compares the batches.
    """
    batches = {sealed.number: sealed.batches[0] for sealed in transaction.write_set.partitions if sealed.batches}
    for number, is_owned, _, last in rows:
        if is_owned:
            return last is not None and last >= last_offset(batches[number])
    return any(batch is not None and bytes(batch) == batches[number] for number, _, batch, _ in rows)
