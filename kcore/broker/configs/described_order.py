"""The order in which DescribeConfigs lists the settings of topics and groups in Apache Kafka 4.3.1.

The order is that of a hash table, and the same in every run. Tools show settings in this order, and programs compare
whole lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

Row = TypeVar("Row")

TOPIC_ORDER: Final = (
    "compression.type",
    "remote.log.delete.on.disable",
    "leader.replication.throttled.replicas",
    "remote.storage.enable",
    "min.insync.replicas",
    "segment.jitter.ms",
    "remote.log.copy.disable",
    "local.retention.ms",
    "cleanup.policy",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "compression.lz4.level",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "flush.messages",
    "compression.zstd.level",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "message.timestamp.type",
    "local.retention.bytes",
    "preallocate",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "unclean.leader.election.enable",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "segment.ms",
    "segment.index.bytes",
)
"""The names of a topic's settings, in the order in which Kafka describes them."""

GROUP_ORDER: Final = (
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.renew.acknowledge.enable",
    "streams.initial.rebalance.delay.ms",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "streams.heartbeat.interval.ms",
    "share.delivery.count.limit",
    "consumer.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.assignment.interval.ms",
    "share.isolation.level",
    "streams.session.timeout.ms",
    "share.partition.max.record.locks",
    "streams.num.standby.replicas",
)
"""The names of a group's settings, in the order in which Kafka describes them."""


def in_order(rows: Mapping[str, Row], order: Iterable[str]) -> dict[str, Row]:
    """Sorts rows by the position of their keys in `order`. Rows whose keys are not in `order` come last."""
    return {name: rows[name] for name in dict.fromkeys([*order, *rows]) if name in rows}
