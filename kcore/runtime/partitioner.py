"""The partition of an internal topic that owns a group, transactional id or share key."""

from kcore_ext.util.java_hash import java_hash, partition_for

__all__ = ["java_hash", "partition_for"]
