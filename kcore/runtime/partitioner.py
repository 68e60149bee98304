"""Which partition of an internal topic a group, transactional id or share key lives in."""

from kcore_ext.util.java_hash import java_hash, partition_for

__all__ = ["java_hash", "partition_for"]
