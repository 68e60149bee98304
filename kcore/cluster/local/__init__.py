"""The store of several processes on one machine: one LMDB file for all logs, and a journal for each process."""

from __future__ import annotations

from kcore.cluster.local.store import LocalClusterStore, open_store

__all__ = ["LocalClusterStore", "open_store"]
