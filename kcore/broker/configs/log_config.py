"""The topic settings that a partition's log obeys, in the form in which appends, readers and cleaners use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kcore.protocol.compression import CompressionType, compress
from kcore_ext.broker.produce import AppendLimits

NO_LIMIT_MS = 2**63 - 1
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


class LogConfig:
    """Settings of a topic's logs; one object for all partitions of the topic, replaced when they change.

    There is no min.insync.replicas: what counts is at most the number of replicas, and that is one.

    Attributes:
        max_message_bytes: the largest batch taken, header included.
        segment_bytes: a batch larger than this is refused; otherwise segments do not exist here.
        log_append_time: timestamps are set by the log (message.timestamp.type = LogAppendTime).
        timestamp_before_max_ms: how far behind the wall clock a create time may be.
        timestamp_after_max_ms: how far ahead of it.
        compression: the codec in which batches are kept, or None: as the producer made them.
        compress: compresses with that codec at the topic's level.
        compact: cleanup.policy contains compact: records need keys.
        delete: cleanup.policy contains delete: retention and DeleteRecords apply.
        delete_retention_ms: how long compaction keeps tombstones.
        min_compaction_lag_ms: how long compaction does not touch a record.
        max_compaction_lag_ms: how long a record may wait for compaction.
        min_cleanable_ratio: which share of a log must be new before it is compacted.
        retention_ms: how long a batch is kept, -1 for ever.
        retention_bytes: how much of a partition is kept, -1 all.
        limits: what of all this decides whether a batch is appended as it came.
    """

    __slots__ = (
        "compact",
        "compress",
        "compression",
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
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """Takes typed values by Kafka's setting names; what is absent has Kafka's default."""
        get = (settings or {}).get
        self.max_message_bytes: int = get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)
        self.segment_bytes: int = get("segment.bytes", 1 << 30)
        self.log_append_time: bool = get("message.timestamp.type", "CreateTime") == "LogAppendTime"
        self.timestamp_before_max_ms: int = get("message.timestamp.before.max.ms", NO_LIMIT_MS)
        self.timestamp_after_max_ms: int = get("message.timestamp.after.max.ms", 3_600_000)
        compression = get("compression.type", "producer")
        self.compression: int | None = None
        self.compress: Callable[[int, Any], bytes] = compress
        if compression != "producer":
            self.compression = CompressionType.from_name(compression)
            level = get(f"compression.{compression}.level")
            if level is not None:
                self.compress = partial(compress, level=level)
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
