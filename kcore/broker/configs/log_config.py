"""The topic settings of a partition's log, as typed attributes for appends, reads and compaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.protocol.compression import CompressionType
from kcore_ext.broker.produce import AppendLimits

NO_LIMIT_MS = 2**63 - 1
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


class LogConfig:
    """Settings of a topic's logs: one object for all partitions of the topic, replaced when a setting changes.

    It has no min.insync.replicas: the setting is capped at the number of replicas, which is one.

    Attributes:
        max_message_bytes: the largest accepted batch, header included.
        segment_bytes: the size of a segment; a larger batch is refused.
        segment_ms: the time after which the next segment begins.
        log_append_time: True if the log sets timestamps (message.timestamp.type = LogAppendTime).
        timestamp_before_max_ms: maximum age of a create time by the wall clock.
        timestamp_after_max_ms: maximum lead of a create time over the wall clock.
        compression: the codec of stored batches; None: the codec of the producer's batch.
        compression_level: the level of `compression`; None: the codec's default level.
        compact: True if cleanup.policy contains compact, so that records need keys.
        delete: True if cleanup.policy contains delete, so that retention and DeleteRecords apply.
        delete_retention_ms: time for which compaction keeps tombstones.
        min_compaction_lag_ms: minimum age of compacted records.
        max_compaction_lag_ms: maximum time that a record waits for compaction.
        min_cleanable_ratio: minimum share of new bytes in a log that is due for compaction.
        retention_ms: retention time of a batch; -1: forever.
        retention_bytes: retained bytes of a partition; -1: all.
        limits: the limits for batches that the fast path appends unchanged.
    """

    __slots__ = (
        "compact",
        "compression",
        "compression_level",
        "delete",
        "delete_retention_ms",
        "limits",
        "log_append_time",
        "max_compaction_lag_ms",
        "max_message_bytes",
        "min_cleanable_ratio",
        "min_compaction_lag_ms",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_ms",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """Reads typed values by Kafka's setting names; an absent setting has Kafka's default."""
        get = (settings or {}).get
        self.max_message_bytes: int = get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)
        internal_bytes: int | None = get("internal.segment.bytes")
        self.segment_bytes: int = get("segment.bytes", 1 << 30) if internal_bytes is None else internal_bytes
        self.segment_ms: int = get("segment.ms", 604_800_000)
        self.log_append_time: bool = get("message.timestamp.type", "CreateTime") == "LogAppendTime"
        self.timestamp_before_max_ms: int = get("message.timestamp.before.max.ms", NO_LIMIT_MS)
        self.timestamp_after_max_ms: int = get("message.timestamp.after.max.ms", 3_600_000)
        compression = get("compression.type", "producer")
        self.compression: int | None = None
        self.compression_level: int | None = None
        if compression != "producer":
            self.compression = CompressionType.from_name(compression)
            self.compression_level = get(f"compression.{compression}.level")
        policies = get("cleanup.policy", "delete")
        if isinstance(policies, str):
            policies = [policy.strip() for policy in policies.split(",")]
        self.compact: bool = "compact" in policies
        self.delete: bool = "delete" in policies
        self.delete_retention_ms: int = get("delete.retention.ms", 86_400_000)
        self.min_compaction_lag_ms: int = get("min.compaction.lag.ms", 0)
        self.max_compaction_lag_ms: int = get("max.compaction.lag.ms", NO_LIMIT_MS)
        self.min_cleanable_ratio: float = get("min.cleanable.dirty.ratio", 0.5)
        self.retention_ms: int = get("retention.ms", 604_800_000)
        self.retention_bytes: int = get("retention.bytes", -1)
        self.limits = AppendLimits(
            min(self.max_message_bytes, self.segment_bytes),
            self.timestamp_before_max_ms,
            self.timestamp_after_max_ms,
            -1 if self.compression is None else int(self.compression),
            self.compact,
            not self.log_append_time,
        )
