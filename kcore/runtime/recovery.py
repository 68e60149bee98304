"""The statistics of a node's recovery."""

from __future__ import annotations

from typing import NamedTuple


class Recovery(NamedTuple):
    """Statistics of an engine's recovery when it was opened.

    Attributes:
        shards: the number of loaded coordinator partitions.
        records: the number of replayed records.
        size_bytes: the size of the batches of these records.
        groups: the number of groups.
        topics: the number of topics, including internal ones.
        elapsed_ms: the total time of the recovery.
    """

    shards: int
    records: int
    size_bytes: int
    groups: int
    topics: int
    elapsed_ms: int
