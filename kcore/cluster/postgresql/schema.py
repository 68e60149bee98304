"""The tables of a cluster in PostgreSQL: creation, migrations, the check of the version, the rights of nodes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, LiteralString

import psycopg
from psycopg import sql

from kcore.cluster.postgresql.sqlstates import log_error
from kcore.cluster.store import METADATA, METADATA_NUMBER
from kcore.errors import ConfigError
from kcore.log.errors import LogError
from kcore.log.write_set import PartitionMeta
from kcore.protocol.uuids import to_text

if TYPE_CHECKING:
    from psycopg import Connection

SCHEMA: Final = "kcore"
"""The PostgreSQL schema that has all tables. Each database has at most one cluster."""

_VERSION_1: Final[tuple[LiteralString, ...]] = (
    # One row: the cluster's id, the lowest partition number that was never assigned, and the timeline of the server
    # that responded last. PostgreSQL begins a new timeline at each promotion of a standby.
    """
    CREATE TABLE cluster (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        cluster_id text NOT NULL,
        next_number bigint NOT NULL,
        timeline bigint NOT NULL
    )
    """,
    # `session`: a random token that a node's writes must name; 0: the node is fenced. `epoch`: the epoch of the node's
    # lease when it registered. `round`: the number of the last transaction that did more than append batches.
    """
    CREATE TABLE nodes (
        node_id int PRIMARY KEY,
        session bigint NOT NULL,
        epoch bigint NOT NULL,
        round bigint NOT NULL DEFAULT 0,
        draining boolean NOT NULL DEFAULT false,
        description bytea NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE leases (
        name text PRIMARY KEY,
        holder int NOT NULL,
        epoch bigint NOT NULL,
        ttl_ms bigint NOT NULL,
        expires_at timestamptz NOT NULL
    ) WITH (fillfactor = 50)
    """,
    # A node writes a row of its own here before it relies on data that it has read: see `ReadBarrier`.
    "CREATE TABLE read_barriers (node_id int PRIMARY KEY, count bigint NOT NULL) WITH (fillfactor = 50)",
    # `node_epoch`: `nodes.epoch` of the leader when it became the leader. A later incarnation may not write.
    """
    CREATE TABLE partitions (
        number bigint PRIMARY KEY,
        topic_id bytea NOT NULL,
        partition int NOT NULL,
        leader int NOT NULL,
        leader_epoch int NOT NULL,
        node_epoch bigint NOT NULL,
        meta bytea NOT NULL,
        UNIQUE (topic_id, partition)
    ) WITH (fillfactor = 70)
    """,
    "CREATE TABLE removed_partitions (number bigint PRIMARY KEY)",
    # No foreign key and no other index: each would cost time in every commit.
    """
    CREATE TABLE batches (
        number bigint NOT NULL,
        base_offset bigint NOT NULL,
        last_offset bigint NOT NULL,
        max_timestamp bigint NOT NULL,
        batch bytea NOT NULL,
        PRIMARY KEY (number, base_offset)
    ) WITH (autovacuum_freeze_min_age = 0)
    """,
    # Producers compress batches. Another compression would only cost time.
    "ALTER TABLE batches ALTER COLUMN batch SET STORAGE EXTERNAL",
    """
    CREATE TABLE snapshot_chunks (
        number bigint NOT NULL,
        snapshot_offset bigint NOT NULL,
        chunk_index int NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (number, snapshot_offset, chunk_index)
    )
    """,
    # The names are bytes: the order and the equality of text depend on the database's collation.
    "CREATE TABLE named_values (name bytea PRIMARY KEY, value bytea NOT NULL)",
)

MIGRATIONS: Final[tuple[tuple[LiteralString, ...], ...]] = (_VERSION_1,)
"""For each version, the statements that migrate from the previous version. Released statements never change."""
VERSION: Final = len(MIGRATIONS)

_LOCK_KEY: Final = 0x6B636F7265  # "kcore"


def create(connection: Connection[Any], node_role: str | None = None) -> tuple[int, int]:
    """Creates or migrates the schema in one transaction.

    Args:
        connection: a connection of the schema's owner, outside a transaction.
        node_role: the role as which nodes connect. It receives only the rights to read and change rows. None if
            nodes connect as the owner.

    Returns:
        The version of the schema before the call (0: no schema), and after the call.

    Raises:
        ConfigError: the schema is newer than this version of kcore, or the role does not exist.
        LogError: PostgreSQL refuses a statement.
    """
    try:
        with connection.transaction():
            # Two commands at the same time must not both create the schema.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
            connection.execute(
                "CREATE TABLE IF NOT EXISTS kcore_schema"
                " (version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
            )
            before = _version(connection)
            if before > VERSION:
                raise ConfigError(_newer(before))
            for number, statements in enumerate(MIGRATIONS[before:], before + 1):
                for statement in statements:
                    connection.execute(statement)
                connection.execute("INSERT INTO kcore_schema (version) VALUES (%s)", (number,))
            if before == 0:
                _insert_first_rows(connection)
            if node_role is not None:
                _grant(connection, node_role)
    except psycopg.errors.InsufficientPrivilege as error:
        raise LogError(
            f"PostgreSQL, creating the schema of the cluster: {error.diag.message_primary}; name the owner of the "
            "database in the URL"
        ) from error
    except psycopg.Error as error:
        raise log_error(error, "creating the schema of the cluster") from error
    return before, VERSION


def _version(connection: Connection[Any]) -> int:
    row = connection.execute("SELECT coalesce(max(version), 0) FROM kcore_schema").fetchone()
    assert row is not None, "an aggregate returns one row"
    return int(row[0])


def _newer(version: int) -> str:
    return (
        f"the schema of the cluster has version {version}, and this kcore supports versions up to {VERSION}: "
        "install the kcore release that created it, or a newer one"
    )


def _insert_first_rows(connection: Connection[Any]) -> None:
    """Inserts the cluster's id and the metadata log, which no node leads yet."""
    connection.execute(
        "INSERT INTO cluster (cluster_id, next_number, timeline) VALUES (%s, %s, 0)",
        (to_text(_new_cluster_id()), METADATA_NUMBER + 1),
    )
    meta = PartitionMeta(METADATA_NUMBER, 0, (), None).encode()
    connection.execute(
        "INSERT INTO partitions VALUES (%s, %s, %s, -1, 0, 0, %s)",
        (METADATA_NUMBER, METADATA.topic_id, METADATA.partition, meta),
    )


def _new_cluster_id() -> bytes:
    """Returns a random cluster id of 16 bytes. Its text never begins with '-', so no command reads it as an option."""
    while to_text(new := secrets.token_bytes(16)).startswith("-"):
        pass
    return new


def _grant(connection: Connection[Any], role: str) -> None:
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
        raise ConfigError(
            f"role {role!r} does not exist: first create the role with CREATE ROLE {role} LOGIN PASSWORD '...'"
        )
    names = {"schema": sql.Identifier(SCHEMA), "role": sql.Identifier(role)}
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}").format(**names))
    connection.execute(
        sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}").format(**names)
    )
    connection.execute(sql.SQL("REVOKE INSERT, UPDATE, DELETE ON kcore_schema FROM {role}").format(**names))


def require_version(connection: Connection[Any]) -> None:
    """Checks that the schema has this kcore's version.

    Raises:
        LogError: there is no schema, it has another version, or this role may not read it.
    """
    try:
        version = _version(connection)
    except psycopg.errors.UndefinedTable as error:
        raise LogError(
            "the database has no tables of a kcore cluster: first run `kcore cluster init --node-role ROLE URL`, with "
            "the owner of the database in the URL and the role of the nodes as ROLE"
        ) from error
    if version > VERSION:
        raise LogError(_newer(version))
    if version < VERSION:
        raise LogError(
            f"the schema of the cluster has version {version}, and this kcore needs version {VERSION}: run "
            "`kcore cluster init` with the same URL, which migrates it"
        )
