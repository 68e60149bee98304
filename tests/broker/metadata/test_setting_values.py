"""Settings of topics and groups: names, types, defaults, bounds, and the reading and showing of values."""

from __future__ import annotations

import math

import pytest

from kcore.broker.configs.group_config import GROUP_SETTINGS
from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.broker.configs.values import InvalidValueError, read_value, show_value
from kcore.broker.metadata.image import ConfigType
from kcore.config.node import Config
from kcore.config.setting import Setting
from tests.broker.context import BrokerContext

TOPIC, GROUP = ConfigType.TOPIC, ConfigType.GROUP
SET = 0

# The topic settings of Apache Kafka 4.3.1: name, type, default, bounds, the broker's name.
TOPIC_TABLE = """
cleanup.policy|LIST|delete|compact delete|log.cleanup.policy
compression.gzip.level|INT|-1||compression.gzip.level
compression.lz4.level|INT|9|1 17|compression.lz4.level
compression.type|STRING|producer|uncompressed zstd lz4 snappy gzip producer|compression.type
compression.zstd.level|INT|3|-131072 22|compression.zstd.level
delete.retention.ms|LONG|86400000|0|log.cleaner.delete.retention.ms
file.delete.delay.ms|LONG|60000|0|log.segment.delete.delay.ms
flush.messages|LONG|9223372036854775807|1|log.flush.interval.messages
flush.ms|LONG|9223372036854775807|0|log.flush.interval.ms
follower.replication.throttled.replicas|LIST|||
index.interval.bytes|INT|4096|0|log.index.interval.bytes
leader.replication.throttled.replicas|LIST|||
local.retention.bytes|LONG|-2|-2|log.local.retention.bytes
local.retention.ms|LONG|-2|-2|log.local.retention.ms
max.compaction.lag.ms|LONG|9223372036854775807|1|log.cleaner.max.compaction.lag.ms
max.message.bytes|INT|1048588|0|message.max.bytes
message.timestamp.after.max.ms|LONG|3600000|0|log.message.timestamp.after.max.ms
message.timestamp.before.max.ms|LONG|9223372036854775807|0|log.message.timestamp.before.max.ms
message.timestamp.type|STRING|CreateTime|CreateTime LogAppendTime|log.message.timestamp.type
min.cleanable.dirty.ratio|DOUBLE|0.5|0 1|log.cleaner.min.cleanable.ratio
min.compaction.lag.ms|LONG|0|0|log.cleaner.min.compaction.lag.ms
min.insync.replicas|INT|1|1|min.insync.replicas
preallocate|BOOLEAN|false||log.preallocate
remote.log.copy.disable|BOOLEAN|false||
remote.log.delete.on.disable|BOOLEAN|false||
remote.storage.enable|BOOLEAN|false||
retention.bytes|LONG|-1||log.retention.bytes
retention.ms|LONG|604800000|-1|log.retention.ms
segment.bytes|INT|1073741824|1048576|log.segment.bytes
segment.index.bytes|INT|10485760|4|log.index.size.max.bytes
segment.jitter.ms|LONG|0|0|log.roll.jitter.ms
segment.ms|LONG|604800000|1|log.roll.ms
unclean.leader.election.enable|BOOLEAN|false||unclean.leader.election.enable
"""

# name, type, default, least value, the broker's name
GROUP_TABLE = """
consumer.assignment.interval.ms|INT|1000|0|group.consumer.assignment.interval.ms
consumer.heartbeat.interval.ms|INT|5000|1|group.consumer.heartbeat.interval.ms
consumer.session.timeout.ms|INT|45000|1|group.consumer.session.timeout.ms
share.assignment.interval.ms|INT|1000|0|group.share.assignment.interval.ms
share.auto.offset.reset|STRING|latest||
share.delivery.count.limit|INT|5|2|group.share.delivery.count.limit
share.heartbeat.interval.ms|INT|5000|1|group.share.heartbeat.interval.ms
share.isolation.level|STRING|read_uncommitted|read_committed read_uncommitted|
share.partition.max.record.locks|INT|2000|100|group.share.partition.max.record.locks
share.record.lock.duration.ms|INT|30000|1000|group.share.record.lock.duration.ms
share.renew.acknowledge.enable|BOOLEAN|true||
share.session.timeout.ms|INT|45000|1|group.share.session.timeout.ms
streams.assignment.interval.ms|INT|1000|0|group.streams.assignment.interval.ms
streams.heartbeat.interval.ms|INT|5000|1|group.streams.heartbeat.interval.ms
streams.initial.rebalance.delay.ms|INT|3000|0|group.streams.initial.rebalance.delay.ms
streams.num.standby.replicas|INT|0|0|group.streams.num.standby.replicas
streams.session.timeout.ms|INT|45000|1|group.streams.session.timeout.ms
"""


def bounds(setting: Setting) -> str:
    if setting.choices is not None:
        return " ".join(setting.choices)
    return " ".join(str(int(bound)) for bound in (setting.low, setting.high) if bound is not None)


def test_the_settings_of_topics_are_kafkas() -> None:
    """Compares name, type, default, bounds and fallback setting of the broker for every topic setting of Kafka 4.3."""
    ours = [
        f"{name}|{row.setting.type.name}|{show_value(row.setting.default)}|{bounds(row.setting)}"
        f"|{row.synonyms[0].name if row.synonyms else ''}"
        for name, row in TOPIC_SETTINGS.items()
    ]
    assert ours == TOPIC_TABLE.strip().splitlines()


def test_the_settings_of_groups_are_kafkas() -> None:
    """Compares every group setting of Kafka 4.3."""
    ours = [
        f"{name}|{row.setting.type.name}|{show_value(row.setting.default)}|{bounds(row.setting)}|{row.broker or ''}"
        for name, row in GROUP_SETTINGS.items()
    ]
    assert ours == GROUP_TABLE.strip().splitlines()


def test_fallback_settings_exist_and_have_the_same_default() -> None:
    """The node's table has every broker setting that is the default or a bound of a group's setting."""
    for name, row in GROUP_SETTINGS.items():
        for broker in (row.broker, row.least, row.most):
            assert broker is None or broker in Config.SETTINGS, (name, broker)
        if row.broker is not None:
            assert Config.SETTINGS[row.broker].default == row.setting.default, name
    for name, topic_row in TOPIC_SETTINGS.items():
        for synonym in topic_row.synonyms:
            setting = Config.SETTINGS.get(synonym.name)
            if setting is not None and setting.default is not None:
                assert setting.default * synonym.factor == topic_row.setting.default, name


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", "compact,", None),
        ("cleanup.policy", ",compact", None),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("cleanup.policy", "Compact", None),
        ("retention.ms", "+5", "5"),
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "\x005\x01", "5"),
        ("retention.ms", "\u20035", None),
        ("retention.ms", "1_000", None),
        ("retention.ms", "", None),
        ("retention.ms", "5L", None),
        ("retention.ms", "\u0663", "3"),
        ("retention.ms", "9223372036854775807", "9223372036854775807"),
        ("retention.ms", "9223372036854775808", None),
        ("retention.ms", "-2", None),
        ("retention.bytes", "-7", "-7"),
        ("segment.bytes", "1048575", None),
        ("segment.bytes", "2147483648", None),
        ("min.cleanable.dirty.ratio", ".5f", "0.5"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "1e-5", "1.0E-5"),
        ("min.cleanable.dirty.ratio", "1.01", None),
        ("min.cleanable.dirty.ratio", "0x1p-1", "0.5"),
        ("min.cleanable.dirty.ratio", "0X.8P0d", "0.5"),
        ("min.cleanable.dirty.ratio", "0x1", None),
        ("min.cleanable.dirty.ratio", "0x1p99999", None),
        ("min.cleanable.dirty.ratio", "Infinity", None),
        ("preallocate", "TRUE", "true"),
        ("preallocate", "yes", None),
        ("compression.type", " gzip ", "gzip"),
        ("compression.type", "GZIP", None),
        ("compression.gzip.level", "0", None),
        ("compression.gzip.level", "-1", "-1"),
        ("compression.gzip.level", "9", "9"),
        ("compression.gzip.level", "10", None),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("leader.replication.throttled.replicas", "1:2, 3:4", "1:2,3:4"),
        ("leader.replication.throttled.replicas", "*,1:2", None),
        ("leader.replication.throttled.replicas", "1:2,", "1:2,"),
        ("leader.replication.throttled.replicas", "1:2,1:2", "1:2,1:2"),
        ("leader.replication.throttled.replicas", ",*", ",*"),
        ("leader.replication.throttled.replicas", "\u0661:2", None),
        ("leader.replication.throttled.replicas", "1", None),
        ("remote.storage.enable", "true", None),
    ],
)
def test_values_are_read_as_kafka_reads_them(name: str, text: str, shown: str | None) -> None:
    """Compares each value with the value that Apache Kafka 4.3.1 parses, or None if Kafka refuses the text."""
    setting = TOPIC_SETTINGS[name].setting
    if shown is None:
        with pytest.raises(InvalidValueError, match=name):
            read_value(setting, text)
    else:
        assert show_value(read_value(setting, text)) == shown


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("latest", True),
        ("earliest", True),
        ("by_duration:PT1H", True),
        ("by_duration:P2DT3H4M5.5S", True),
        ("by_duration:", False),
        ("by_duration:P", False),
        ("by_duration:PT", False),
        ("by_duration:1h", False),
        ("by_duration:-PT1H", False),
        pytest.param(f"by_duration:P{'9' * 5000}D", False, id="5000 digits"),
        ("latest:", False),
        ("Latest", False),
    ],
)
def test_share_groups_accept_latest_earliest_and_durations_as_reset(text: str, good: bool) -> None:
    """The value is latest, earliest, or a duration that is not negative."""
    node = BrokerContext()
    assert node.alter(GROUP, "g", ("share.auto.offset.reset", SET, text)).error_code == (0 if good else 40)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1e-3, "0.001"),
        (9.9e-4, "9.9E-4"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
        (0.0, "0.0"),
        (1.5e300, "1.5E300"),
        (-math.inf, "-Infinity"),
    ],
)
def test_fractions_are_shown_as_java_shows_them(value: float, shown: str) -> None:
    assert show_value(value) == shown


def test_the_refusal_of_a_value_names_the_valid_ones() -> None:
    result = BrokerContext().alter(GROUP, "g", ("share.auto.offset.reset", SET, "first"))
    assert result.error_message == (
        "share.auto.offset.reset='first': neither latest nor earliest nor by_duration: with an ISO 8601 duration"
    )


@pytest.mark.parametrize("text", ["9" * 5_000, "-" + "9" * 5_000, "0" * 5_000 + "9" * 20])
def test_numbers_of_thousands_of_digits_are_refused(text: str) -> None:
    node = BrokerContext()
    assert node.create("t").error_code == 0
    assert node.alter(TOPIC, "t", ("retention.ms", SET, text)).error_code == 40


def test_leading_zeroes_do_not_count_as_digits() -> None:
    node = BrokerContext()
    assert node.create("t").error_code == 0
    assert node.alter(TOPIC, "t", ("retention.ms", SET, "0" * 5_000 + "7")).error_code == 0
