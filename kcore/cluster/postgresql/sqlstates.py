"""The reaction to each PostgreSQL error, which depends on its SQLSTATE."""

from __future__ import annotations

from enum import Enum
from typing import Final

import psycopg

from kcore.log.errors import FailureReason, LogError, StoreUnavailableError


class Reaction(Enum):
    """The kind of an error, which determines the reaction to the failed statement."""

    LOST = "lost"
    """The connection ended. If the statement committed something, its outcome is unknown."""
    RETRY = "retry"
    """The statement has stored no data, and may succeed if the caller repeats it after a pause."""
    WRONG_SERVER = "wrong server"
    """The server is a standby, which accepts no writes. Another connection may reach the primary."""
    FENCED = "fenced"
    """A check of leadership failed. If a check fails, the statements of this package divide by zero."""
    DUPLICATE = "duplicate"
    """The statement inserts a row whose key exists already."""
    ALARM = "alarm"
    """The server lacks a resource. The statement has stored no data, and an operator must act."""
    FATAL = "fatal"
    """The statement, the schema, the data or the permissions are wrong: a repetition would fail, too."""


_CODES: Final = {
    "57P01": Reaction.LOST,  # the backend was terminated, or the server shuts down
    "57P02": Reaction.LOST,  # another backend crashed
    "57P05": Reaction.LOST,  # idle_session_timeout
    "25P03": Reaction.LOST,  # idle_in_transaction_session_timeout
    "25P04": Reaction.LOST,  # transaction_timeout
    "40003": Reaction.LOST,  # statement completion unknown
    "40001": Reaction.RETRY,  # serialization failure
    "40P01": Reaction.RETRY,  # deadlock
    "55P03": Reaction.RETRY,  # lock_timeout
    "57014": Reaction.RETRY,  # statement_timeout, or cancelled
    "53300": Reaction.RETRY,  # too many connections
    "57P03": Reaction.RETRY,  # the server is starting
    "25006": Reaction.WRONG_SERVER,
    "22012": Reaction.FENCED,
    "23505": Reaction.DUPLICATE,
    "53100": Reaction.ALARM,  # disk full
    "53200": Reaction.ALARM,  # out of memory
    "53400": Reaction.ALARM,  # a configured limit
    "58030": Reaction.ALARM,  # I/O error
}
_REASONS: Final = {
    "53100": FailureReason.DISK_FULL,
    "54000": FailureReason.TOO_LARGE,
    "XX001": FailureReason.CORRUPT,
    "XX002": FailureReason.CORRUPT,
}


def reaction(error: psycopg.Error) -> Reaction:
    """Returns the reaction to an error. Errors of the connection itself have no SQLSTATE."""
    code = error.sqlstate
    if code is None:
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Reaction.LOST if lost else Reaction.FATAL
    if code.startswith("08"):
        return Reaction.LOST
    return _CODES.get(code, Reaction.FATAL)


def describe(error: psycopg.Error) -> str:
    """Returns the message of an error on one line, with its SQLSTATE."""
    primary = error.diag.message_primary
    text = primary if primary else " ".join(str(error).split())
    return text if error.sqlstate is None else f"{text} (SQLSTATE {error.sqlstate})"


def log_error(error: psycopg.Error, doing: str) -> LogError:
    """Converts an error of PostgreSQL to a LogError. The failed call must have stored no change, or be repeatable.

    Args:
        error: PostgreSQL's or the connection's error.
        doing: the operation, for the message: "reading batches".
    """
    text = f"PostgreSQL, {doing}: {describe(error)}"
    if reaction(error) in (Reaction.LOST, Reaction.RETRY, Reaction.WRONG_SERVER):
        return StoreUnavailableError(text)
    return LogError(text, _REASONS.get(error.sqlstate or "", FailureReason.IO_ERROR))
