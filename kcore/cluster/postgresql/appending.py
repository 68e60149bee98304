"""Runs the statement of write transactions that only append batches, in one call of libpq.

Most write transactions of a node only append batches. psycopg's cursors would take longer for the statement than
PostgreSQL does, so this module calls psycopg's wrapper of libpq (`psycopg.pq`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

import psycopg
from psycopg import pq

from kcore.cluster.postgresql import statements as sql

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from kcore.cluster.postgresql.sessions import Session

_NAME: Final = b"kcore_append"
_FORMATS: Final = [pq.Format.BINARY] * len(sql.APPEND_PARAMETERS)


def _preparation() -> LiteralString:
    """Returns the statement that prepares `APPEND`, with numbers in place of the names of its parameters."""
    text = sql.APPEND
    for number, name in enumerate(sql.APPEND_PARAMETERS, 1):
        text = text.replace(f"%({name})b", f"${number}")
    types = {"node": "bigint", "node_epoch": "bigint", "session": "bigint", "batches": "bytea[]"}
    columns = ", ".join(types.get(name, "bigint[]") for name in sql.APPEND_PARAMETERS)
    return f"PREPARE kcore_append ({columns}) AS {text}"


_PREPARE: Final = _preparation()


def prepare_append(session: Session) -> None:
    """Prepares a session for `append`. Raises psycopg.Error."""
    session.connection.execute(_PREPARE)


def append(session: Session, parameters: list[bytes]) -> int:
    """Runs `APPEND`, and waits for its result and its commit.

    Args:
        session: a prepared session.
        parameters: the binary parameters, in the order of `APPEND_PARAMETERS`.

    Returns:
        the number of rows that the statement has stored.

    Raises:
        psycopg.Error: the server reported an error, or the connection is lost.
    """
    result = session.connection.pgconn.exec_prepared(_NAME, parameters, _FORMATS, pq.Format.BINARY)
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise _error(result)
    return result.command_tuples or 0


def _error(result: PGresult) -> psycopg.Error:
    """Returns the exception of a result that reports an error."""
    field = result.error_field(pq.DiagnosticField.SQLSTATE)
    text = result.get_error_message()
    if field is None:
        return psycopg.OperationalError(text)
    try:
        return psycopg.errors.lookup(field.decode())(text)
    except KeyError:
        error = psycopg.DatabaseError(text)
        error.sqlstate = field.decode()
        return error
