"""Every setting of topics: Kafka's name, type, default and bounds, its meaning, and the broker's settings that it falls
back to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from kcore.config.node import is_gzip_level
from kcore.config.setting import LONG_MAX, Setting, SettingType

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class Synonym(NamedTuple):
    """A setting of the broker that gives a topic's setting its default.

    Attributes:
        name: the broker's setting.
        factor: the multiplier of the synonym's value (hours to milliseconds).
    """

    name: str
    factor: int = 1


class TopicSetting(NamedTuple):
    """A setting of topics, and its synonyms among the broker's settings. The first synonym with a value counts."""

    setting: Setting
    synonyms: tuple[Synonym, ...]


_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")  # as in Kafka, an element may be empty


def _throttled_fault(value: tuple[str, ...]) -> str | None:
    if "".join(value) == "*" or all(_THROTTLED.fullmatch(part) for part in value):
        return None
    return "neither * nor a list of partition:broker"


def _gzip_fault(value: int) -> str | None:
    return None if is_gzip_level(value) else "neither -1 nor 1 to 9"


def _remote_fault(value: bool) -> str | None:
    return "kcore has no remote storage" if value else None


def _row(
    name: str,
    kind: SettingType,
    default: Any,
    doc: str,
    *synonyms: str | Synonym,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    check: Callable[[Any], str | None] | None = None,
) -> TopicSetting:
    setting = Setting(name, kind, default, doc, low, high, choices, dynamic=True, check=check)
    return TopicSetting(setting, tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms))


_ROWS = (
    _row("segment.bytes", SettingType.INT, 1 << 30, "Size of a segment of the log.", "log.segment.bytes", low=1 << 20),
    _row(
        "segment.ms",
        SettingType.LONG,
        604_800_000,
        "Time after which the next segment begins.",
        "log.roll.ms",
        Synonym("log.roll.hours", 3_600_000),
        low=1,
    ),
    _row(
        "segment.jitter.ms",
        SettingType.LONG,
        0,
        "Largest random reduction of segment.ms, so that not all segments begin at once.",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", 3_600_000),
        low=0,
    ),
    _row(
        "segment.index.bytes",
        SettingType.INT,
        10_485_760,
        "Largest size of an index.",
        "log.index.size.max.bytes",
        low=4,
    ),
    _row(
        "index.interval.bytes",
        SettingType.INT,
        4_096,
        "Bytes of records between two entries of the offset index.",
        "log.index.interval.bytes",
        low=0,
    ),
    _row(
        "flush.messages",
        SettingType.LONG,
        LONG_MAX,
        "Records after which the log is forced to the disk; the node's durability decides when that is.",
        "log.flush.interval.messages",
        low=1,
    ),
    _row(
        "flush.ms",
        SettingType.LONG,
        LONG_MAX,
        "Time after which the log is forced to the disk; the node's durability decides when that is.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        low=0,
    ),
    _row("preallocate", SettingType.BOOLEAN, False, "Whether segments are allocated ahead.", "log.preallocate"),
    _row(
        "file.delete.delay.ms",
        SettingType.LONG,
        60_000,
        "Time for which a deleted segment stays on the disk.",
        "log.segment.delete.delay.ms",
        low=0,
    ),
    _row(
        "local.retention.bytes",
        SettingType.LONG,
        -2,
        "Local retention by size with remote storage; -2: as retention.bytes.",
        "log.local.retention.bytes",
        low=-2,
    ),
    _row(
        "local.retention.ms",
        SettingType.LONG,
        -2,
        "Local retention by time with remote storage; -2: as retention.ms.",
        "log.local.retention.ms",
        low=-2,
    ),
    _row("remote.storage.enable", SettingType.BOOLEAN, False, "Tiered storage; not available.", check=_remote_fault),
    _row("remote.log.copy.disable", SettingType.BOOLEAN, False, "Stops copying to remote storage."),
    _row(
        "remote.log.delete.on.disable",
        SettingType.BOOLEAN,
        False,
        "Deletes remote data when remote storage is disabled.",
    ),
    _row(
        "cleanup.policy",
        SettingType.LIST,
        ("delete",),
        "Handling of old records: delete by time and size, compact by key, both, or empty to keep all.",
        "log.cleanup.policy",
        choices=("compact", "delete"),
    ),
    _row("retention.bytes", SettingType.LONG, -1, "Bytes that a partition keeps; -1: no limit.", "log.retention.bytes"),
    _row(
        "retention.ms",
        SettingType.LONG,
        604_800_000,
        "Retention time of records; -1: forever.",
        "log.retention.ms",
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", 3_600_000),
        low=-1,
    ),
    _row(
        "delete.retention.ms",
        SettingType.LONG,
        86_400_000,
        "Time for which compaction keeps tombstones.",
        "log.cleaner.delete.retention.ms",
        low=0,
    ),
    _row(
        "min.compaction.lag.ms",
        SettingType.LONG,
        0,
        "Minimum age of a record before compaction may remove it.",
        "log.cleaner.min.compaction.lag.ms",
        low=0,
    ),
    _row(
        "max.compaction.lag.ms",
        SettingType.LONG,
        LONG_MAX,
        "Maximum time that a record waits for compaction.",
        "log.cleaner.max.compaction.lag.ms",
        low=1,
    ),
    _row(
        "min.cleanable.dirty.ratio",
        SettingType.DOUBLE,
        0.5,
        "Share of new bytes from which on a log is compacted.",
        "log.cleaner.min.cleanable.ratio",
        low=0,
        high=1,
    ),
    _row("max.message.bytes", SettingType.INT, 1_048_588, "Largest accepted batch.", "message.max.bytes", low=0),
    _row(
        "compression.type",
        SettingType.STRING,
        "producer",
        "Codec of stored batches; producer: the producer's codec.",
        "compression.type",
        choices=COMPRESSION_TYPES,
    ),
    _row("compression.gzip.level", SettingType.INT, -1, "gzip's level.", "compression.gzip.level", check=_gzip_fault),
    _row("compression.lz4.level", SettingType.INT, 9, "lz4's level.", "compression.lz4.level", low=1, high=17),
    _row(
        "compression.zstd.level", SettingType.INT, 3, "zstd's level.", "compression.zstd.level", low=-131_072, high=22
    ),
    _row(
        "message.timestamp.type",
        SettingType.STRING,
        "CreateTime",
        "Source of timestamps: CreateTime is the producer's clock, LogAppendTime the log's.",
        "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    _row(
        "message.timestamp.before.max.ms",
        SettingType.LONG,
        LONG_MAX,
        "Maximum age of a record's timestamp by the node's clock.",
        "log.message.timestamp.before.max.ms",
        low=0,
    ),
    _row(
        "message.timestamp.after.max.ms",
        SettingType.LONG,
        3_600_000,
        "Maximum lead of a record's timestamp over the node's clock.",
        "log.message.timestamp.after.max.ms",
        low=0,
    ),
    _row(
        "min.insync.replicas",
        SettingType.INT,
        1,
        "Replicas that must have a batch before a producer with acks=all gets a response.",
        "min.insync.replicas",
        low=1,
    ),
    _row(
        "unclean.leader.election.enable",
        SettingType.BOOLEAN,
        False,
        "Allows a lagging replica to become leader.",
        "unclean.leader.election.enable",
    ),
    _row(
        "leader.replication.throttled.replicas",
        SettingType.LIST,
        (),
        "Replicas whose replication is throttled at the leader, partition:broker each, or *.",
        check=_throttled_fault,
    ),
    _row(
        "follower.replication.throttled.replicas",
        SettingType.LIST,
        (),
        "Replicas whose replication is throttled at the follower, partition:broker each, or *.",
        check=_throttled_fault,
    ),
)

TOPIC_SETTINGS: dict[str, TopicSetting] = {row.setting.name: row for row in sorted(_ROWS, key=lambda r: r.setting.name)}
"""Name -> setting, sorted by name: the settings of Kafka 4.3."""

INTERNAL_TOPIC_SETTINGS: dict[str, TopicSetting] = {
    row.setting.name: row
    for row in (
        _row(
            "internal.segment.bytes",
            SettingType.INT,
            None,
            "Size of a segment without the lower bound of segment.bytes, for tests.",
        ),
    )
}
"""Settings that Kafka accepts, but describes only for a topic that has set them."""


def topic_setting(name: str) -> TopicSetting | None:
    """Returns the setting of topics with this name, internal ones included, or None."""
    return TOPIC_SETTINGS.get(name) or INTERNAL_TOPIC_SETTINGS.get(name)
