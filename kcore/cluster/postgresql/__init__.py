"""A cluster's store in PostgreSQL: the tables, the logs of nodes, leases and fencing."""

from __future__ import annotations

from kcore.cluster.postgresql.store import PostgresClusterStore

__all__ = ["PostgresClusterStore", "open_store"]


def open_store(url: str, durability: str = "fsync") -> PostgresClusterStore:
    """Opens the store of a cluster; it connects at the first call.

    Args:
        url: the URL of the database: `postgresql://USER@HOST,HOST/DATABASE`, with libpq's parameters.
        durability: `fsync` if a commit waits until PostgreSQL, with its synchronous standbys, has stored it; `os` if a
            crash of the server may lose the last commits.

    Raises:
        ConfigError: the URL is malformed.
    """
    return PostgresClusterStore(url, durability)
