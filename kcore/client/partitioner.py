"""Maps record keys to partitions as Java's producer does, so that equal keys share a partition."""

from __future__ import annotations

from kcore_ext.client.partitioner import murmur2, partition_of

__all__ = ["murmur2", "partition_of"]
