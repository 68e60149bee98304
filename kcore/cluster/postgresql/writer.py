"""The writing connection of a node: stores rounds, and determines the results of rounds whose result is unknown."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Final, NoReturn

import psycopg

from kcore.cluster.postgresql import statements as sql
from kcore.cluster.postgresql.appending import append, prepare_append
from kcore.cluster.postgresql.rounds import NodeIdentity, Round
from kcore.cluster.postgresql.sqlstates import Reaction, describe, log_error, reaction
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
"""Maximum number of attempts to store a round. The writer repeats it after temporary errors that stored no change."""
UNPREPARED: Final = "26000"
"""The SQLSTATE of a statement that was not prepared on this connection, or that was deallocated."""
FIRST_PAUSE_S: Final = 0.01
"""The pause before the second attempt; it doubles with each attempt."""


def new_token() -> int:
    """Returns a random session token. 0 is the token of fenced nodes."""
    return secrets.randbits(62) + 1


class RoundWriter:
    """The writer of the rounds of one incarnation of a node, which stores them one at a time.

    After a lost connection the outcome of a round is unknown: the server may have stored it, may store it later, or may
    never have received it. `settle` determines the outcome. It first changes the node's session token. This change
    waits until the server has ended the interrupted round, and fences a round that the server has not received yet.
    Then `settle` reads the result, in a transaction whose commit waits for the synchronous standbys.

    Args:
        sessions: the connections of the node.
        identity: the incarnation.
        token: the session token with which the incarnation has registered.
    """

    def __init__(self, sessions: Sessions, identity: NodeIdentity, token: int) -> None:
        self._sessions = sessions
        self._identity = identity
        self._token = token
        # All tokens that the server may have: a settlement that lost its connection may have stored a newer one.
        self._tokens = [token]
        self._session: Session | None = None
        self._unsettled_round: Round | None = None
        self._round = 0  # the number of the last round that did more than append
        self._ends: dict[int, int] = {}  # acknowledged end offsets, by partition number
        self._lock = Lock()

    # -- rounds

    def write(self, write_set: WriteSet) -> None:
        """Stores a write set, as `SharedStorage.write` describes."""
        with self._lock:
            if self._unsettled_round is not None:
                raise UnknownOutcomeError("the outcome of the previous commit is not known yet")
            round_ = Round(write_set, self._identity, self._round + 1)
            pause_s = FIRST_PAUSE_S
            for attempt in range(1, ATTEMPTS + 1):
                error = self._attempt(round_)
                if error is None:
                    return
                if attempt == ATTEMPTS:
                    raise log_error(error, "storing a commit") from error
                time.sleep(pause_s * (1 + secrets.randbelow(100) / 100))
                pause_s *= 2

    def _attempt(self, round_: Round) -> psycopg.Error | None:
        """Stores a round. Returns the error if the round is not stored and a repetition may succeed.

        Raises:
            FencedWriteError: this node does not lead.
            UnknownOutcomeError: the connection was lost.
            LogError: the server refuses the round.
        """
        session = self._connected()
        self._unsettled_round = round_
        try:
            with self._sessions.watchdog.limit(session, self._sessions.timeout_s):
                is_stored = self._send(session, round_)
        except psycopg.Error as error:
            return self._failed(session, round_, error)
        except BaseException:
            # An interrupt, or memory is short: the statement may be sent.
            self._lose(session)
            raise
        if session.is_doubtful:
            self._lose(session)
            raise UnknownOutcomeError(
                "PostgreSQL ended a commit's wait for its synchronous standby, which may not have the commit"
            )
        if not is_stored:
            self._unsettled_round = None
            self._refuse(session, round_)
        self._stored(round_)
        return None

    def _stored(self, round_: Round) -> None:
        """Records that a round is stored."""
        for sealed in round_.write_set.partitions:
            if sealed.bases:
                self._ends[sealed.number] = sealed.end_offset
        if round_.number:
            self._round = round_.number
        round_.write_set.is_durable = True
        self._unsettled_round = None

    def _send(self, session: Session, round_: Round) -> bool:
        """Sends a round. Returns False if its single statement has stored no batch, because a check failed."""
        if round_.number:
            session.transact_at_once(round_.transaction(self._token))
            return True
        parameters, count = round_.append_parameters(self._token)
        return append(session, parameters) == count

    def _failed(self, session: Session, round_: Round, error: psycopg.Error) -> psycopg.Error:
        """Handles an error of a round; returns it if a repetition may succeed."""
        kind = reaction(error)
        if session.connection.closed or kind in (Reaction.LOST, Reaction.WRONG_SERVER):
            self._lose(session)
            raise UnknownOutcomeError(f"PostgreSQL, storing a commit: {describe(error)}") from error
        self._unsettled_round = None  # the server has reported the failure of a statement, which aborts the transaction
        if kind is Reaction.RETRY:
            return error
        if error.sqlstate == UNPREPARED:
            return self._prepare_again(session, error)
        if kind in (Reaction.FENCED, Reaction.DUPLICATE):
            self._refuse(session, round_, error)
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

    def _refuse(self, session: Session, round_: Round, error: psycopg.Error | None = None) -> NoReturn:
        """Raises the error that explains why the server refused a round."""
        try:
            with self._sessions.watchdog.limit(session, self._sessions.timeout_s):
                node_id = self._identity.node_id
                rows = session.execute(sql.FENCED_NODE, (node_id, [self._token])).fetchall()
                if rows[0][0]:
                    raise FencedWriteError(f"node {node_id} is fenced", node=True)
                refused = [int(number) for (number,) in session.execute(sql.NOT_OWNED, round_.checks()).fetchall()]
        except psycopg.Error:
            # It is refused in any case, and any of its partitions may be the reason.
            refused = list(round_.owned)
            self._drop(session)
        keys = round_.keys()
        changes = round_.write_set.cluster
        if not refused and error is not None and changes is not None:
            changed = [new.key for new in changes.created] + [move.key for move in changes.moved]
            raise CorruptLogError(
                changed[0] if changed else keys[0], None, "the leaders in the store differ from the metadata log"
            ) from error
        if not refused and error is not None:
            raise log_error(error, "storing a commit") from error
        partitions = [keys[number] for number in refused or round_.owned]
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
        """Closes the connection of a round with an unknown outcome."""
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

    def settle(self) -> None:
        """Determines the outcome of an interrupted round, as `SharedStorage.settle` describes."""
        with self._lock:
            round_ = self._unsettled_round
            if round_ is None:
                return
            if self._session is not None:  # an interrupt came before the connection was closed
                self._drop(self._session)
            session = self._connect()
            try:
                is_stored = self._read_outcome_in_time(session, round_)
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
                self._stored(round_)
            self._unsettled_round = None
            logger.info(
                "cluster: node %s is connected to PostgreSQL again; the commit that the lost connection interrupted is "
                "%s; the node accepts writes again",
                self._identity.node_id,
                "stored" if is_stored else "not stored",
            )

    def _read_outcome_in_time(self, session: Session, round_: Round) -> bool:
        timeout_s = self._sessions.timeout_s
        try:
            with self._sessions.watchdog.limit(session, timeout_s):
                return self._read_outcome(session, round_)
        except psycopg.errors.LockNotAvailable:
            # The interrupted round still holds its locks: the server waits for the rest of it, or for a standby.
            self._sessions.end_lost_backends(session)
            with self._sessions.watchdog.limit(session, timeout_s):
                return self._read_outcome(session, round_)

    def _read_outcome(self, session: Session, round_: Round) -> bool:
        """Fences the interrupted round and reads whether it is stored, in one synchronous transaction."""
        node_id, epoch = self._identity
        token = new_token()
        bases = round_.expected_bases()
        self._tokens.append(token)
        connection = session.connection
        with session.transaction():
            connection.execute("SET LOCAL synchronous_commit = on")
            tokens = self._tokens[:-1]
            row = session.execute(sql.NEW_SESSION, (token, node_id, epoch, tokens)).fetchone()
            if row is None:
                # The node is fenced, so the round cannot be stored any more; it may have been stored before.
                row = session.execute(sql.LAST_ROUND, (node_id, epoch)).fetchone()
            parameters = {
                **round_.checks(),
                "numbers": [number for number, _ in bases],
                "epochs": [round_.owned[number] for number, _ in bases],
                "bases": [base for _, base in bases],
            }
            rows = session.execute(sql.STORED_BATCHES, parameters).fetchall() if bases else []
            expected = {**self._ends, **dict(bases)}
            ends = session.execute(sql.OWNED_ENDS, (list(expected), node_id, epoch)).fetchall()
            session.execute(sql.READ_BARRIER, (node_id,))
        stored_round = None if row is None else int(row[0])
        if stored_round is not None and stored_round < self._round:
            raise StoreRewoundError(
                f"PostgreSQL has the commits of node {node_id} only up to number {stored_round}, but number "
                f"{self._round} was acknowledged: a failover lost commits, or a backup was restored"
            )
        self._require_ends(round_, expected, ends)
        return stored_round == round_.number if round_.number else _has_batches(round_, rows)

    def _require_ends(self, round_: Round, expected: dict[int, int], rows: list[Row]) -> None:
        """Checks that no partition that this node still leads ends before an acknowledged offset."""
        lost = []
        for number, meta, last in rows:
            end = max(PartitionMeta.decode(meta).log_start_offset, 0 if last is None else last + 1)
            if end < expected[number]:
                lost.append((number, end))
        if lost:
            keys = round_.keys()
            number, end = lost[0]
            raise StoreRewoundError(
                f"PostgreSQL: {keys.get(number, f'partition number {number}')} ends at {end}, and offsets below "
                f"{expected[number]} were acknowledged: commits were lost in a failover, or a backup was restored",
                [keys[number] for number, _ in lost if number in keys],
            )
        owned = {number for number, _, _ in rows}
        self._ends = {number: end for number, end in self._ends.items() if number in owned}


def _has_batches(round_: Round, rows: list[Row]) -> bool:
    """Returns True if the store has the batches of a round that only appends. It has all of them or none.

    The check reads one partition that this node still leads, because no other node could write there. If the node does
    not lead any of the partitions any more, the check compares the batches themselves.
    """
    batches = {sealed.number: sealed.batches[0] for sealed in round_.write_set.partitions if sealed.batches}
    for number, is_owned, _, last in rows:
        if is_owned:
            return last is not None and last >= last_offset(batches[number])
    return any(batch is not None and bytes(batch) == batches[number] for number, _, batch, _ in rows)
