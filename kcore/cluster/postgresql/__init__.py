"""A cluster's store in PostgreSQL: the tables, the logs of nodes, leases and fencing."""

from __future__ import annotations

from kcore.cluster.postgresql import schema
from kcore.cluster.postgresql.server_checks import warnings
from kcore.cluster.postgresql.sessions import Sessions
from kcore.cluster.postgresql.store import PostgresClusterStore
from kcore.cluster.store import Initialised

__all__ = ["PostgresClusterStore", "initialise", "open_store"]


def open_store(url: str, durability: str = "fsync") -> PostgresClusterStore:
    """Opens the store of a cluster. The store connects at its first call.

    Args:
        url: the URL of the database: `postgresql://USER@HOST,HOST/DATABASE`, with libpq's parameters.
        durability: `fsync`: a commit waits until PostgreSQL and its synchronous standbys have stored it. `os`: a crash
            of the server can lose the last commits.

    Raises:
        ConfigError: the URL is malformed.
    """
    return PostgresClusterStore(url, durability)


def initialise(url: str, node_role: str | None = None) -> Initialised:
    """Creates the schema in a database, or migrates it; see `kcore.cluster.urls.initialise`."""
    sessions = Sessions(url)
    try:
        session = sessions.connect("init", check_schema=False)
        try:
            server_warnings = warnings(session.connection, "fsync", sessions.host_count)
            before, after = schema.create(session.connection, node_role)
        finally:
            sessions.discard(session)
    finally:
        sessions.close()
    store = PostgresClusterStore(url)
    try:
        return Initialised(store.cluster_id(), before, after, tuple(server_warnings))
    finally:
        store.close()
