"""Checks for settings of a PostgreSQL server that could lose acknowledged data, or that may reduce availability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.log.errors import LogError, StoreUnavailableError

if TYPE_CHECKING:
    from psycopg import Connection

MIN_SERVER_VERSION: Final = 140000
"""PostgreSQL 14: the first version with `client_connection_check_interval`, which ends transactions of dead nodes."""
MIN_CONNECTIONS: Final = 40
"""The smallest `max_connections` of a server for which kcore logs no warning.

A node uses up to 12 connections: the writer, leases, renewals, notifications and readers.
"""

_STATE = """
SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, current_setting('fsync')::bool,
    current_setting('full_page_writes')::bool, current_setting('server_version_num')::int,
    CASE WHEN pg_is_in_recovery() THEN NULL
        ELSE ('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint END
"""


def check_server(connection: Connection[Any]) -> int:
    """Refuses a server on which acknowledged commits could be lost, or which accepts no writes.

    Returns:
        The server's timeline, which increases with each promotion of a standby.

    Raises:
        StoreUnavailableError: the server is a standby or read-only, so another server may be the primary.
        LogError: a setting or the version of the server is not acceptable.
    """
    row = connection.execute(_STATE).fetchone()
    assert row is not None, "a SELECT of values returns one row"
    recovering, read_only, fsync, full_page_writes, version, timeline = row
    if recovering or read_only:
        kind = "a standby" if recovering else "read-only"
        raise StoreUnavailableError(f"PostgreSQL: {_address(connection)} is {kind}, and kcore needs the primary")
    if version < MIN_SERVER_VERSION:
        raise LogError(
            f"PostgreSQL: {_address(connection)} has version {version // 10000}, and kcore needs 14 or later"
        )
    for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if not value:
            raise LogError(
                f"PostgreSQL: {_address(connection)} runs with {name} = off, so a crash loses acknowledged commits or "
                f"damages the database: set {name} = on"
            )
    return int(timeline)


def _address(connection: Connection[Any]) -> str:
    info = connection.info
    return f"server {info.host or 'local'}:{info.port}"


def warnings(connection: Connection[Any], durability: str, host_count: int) -> list[str]:
    """Returns warnings about settings that kcore accepts, although they reduce durability or availability.

    Args:
        connection: a connection to the primary.
        durability: the setting `kcore.durability`.
        host_count: the number of hosts in the URL.
    """
    row = connection.execute(
        "SELECT current_setting('synchronous_standby_names'), current_setting('max_connections')::int,"
        " current_setting('data_checksums')::bool, current_setting('synchronous_commit')"
    ).fetchone()
    assert row is not None, "a SELECT of values returns one row"
    standbys, max_connections, checksums, _ = row
    texts = []
    if not standbys and durability == "fsync":
        texts.append(
            "synchronous_standby_names is empty: commits survive a crash of the primary, but a failover to a standby "
            "may lose acknowledged ones"
        )
    if not standbys and host_count > 1:
        texts.append(
            f"the URL has {host_count} hosts, and no standby is synchronous: a failover may go back to an older log"
        )
    if max_connections < MIN_CONNECTIONS:
        texts.append(f"max_connections is {max_connections}: a node uses up to 12 connections")
    if not checksums:
        texts.append("data_checksums is off: PostgreSQL does not detect damaged pages")
    return texts
