"""Changes and descriptions of settings: effective values with their sources, and refused changes."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.configs.describe import DescribeOptions, SettingsView
from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.broker.metadata.image import ConfigType
from kcore.config.kafka_settings import kafka_settings, unlisted_settings
from kcore.config.node import Config
from kcore.config.setting import Setting, SettingType
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kcore.protocol.records.metadata import ConfigRecord, FeatureLevelRecord
from tests.broker.context import NODE_ID, BrokerContext
from tests.broker.metadata.test_create_topics import Only

TOPIC, BROKER, METRICS, GROUP = ConfigType.TOPIC, ConfigType.BROKER, ConfigType.CLIENT_METRICS, ConfigType.GROUP
SET, DELETE, APPEND, SUBTRACT = range(4)
NODE = str(NODE_ID)
LONG_MAX = 2**63 - 1


# ---------------------------------------------------------------- topics
def test_contradictory_settings_are_refused() -> None:
    """min.compaction.lag.ms must not exceed max.compaction.lag.ms, even if one of the values is the broker's."""
    node = BrokerContext({"log.cleaner.max.compaction.lag.ms": 100})
    assert node.create("t", configs={"min.compaction.lag.ms": "101"}).error_code == 40
    assert node.create("t", configs={"min.compaction.lag.ms": "100"}).error_code == 0
    assert node.alter(TOPIC, "t", ("max.compaction.lag.ms", SET, "99")).error_code == 40
    assert (
        node.alter(TOPIC, "t", ("max.compaction.lag.ms", SET, "99"), ("min.compaction.lag.ms", SET, "9")).error_code
        == 0
    )


def test_a_negative_retention_of_the_broker_is_unlimited() -> None:
    node = BrokerContext({"log.retention.ms": -5})
    node.create("t")
    assert node.value(TOPIC, "t", "retention.ms") == ("-1", 4)


def test_a_topics_default_follows_the_broker_at_once() -> None:
    """Sets message.max.bytes in the file, for all brokers and for this node, and max.message.bytes of the topic. Then
    removes the last three values in reverse order. The topic has the most specific value after each step.
    """
    node = BrokerContext({"message.max.bytes": 1000})
    node.create("t")
    key, own = "max.message.bytes", "message.max.bytes"
    partition = node.partitions.get("t", 0)
    assert partition is not None

    def seen() -> tuple[str | None, int, int]:
        value, source = node.value(TOPIC, "t", key)
        return value, source, partition.config.max_message_bytes

    assert seen() == ("1000", 4, 1000)
    assert node.alter(BROKER, "", (own, SET, "2000")).error_code == 0
    assert seen() == ("2000", 3, 2000)
    assert node.alter(BROKER, NODE, (own, SET, "3000")).error_code == 0
    assert seen() == ("3000", 2, 3000)
    assert node.alter(TOPIC, "t", (key, SET, "4000")).error_code == 0
    assert seen() == ("4000", 1, 4000)
    (setting,) = node.describe(TOPIC, "t", key, include_synonyms=True).configs
    assert [(s.name, s.value, s.source) for s in setting.synonyms] == [
        (key, "4000", 1),
        (own, "3000", 2),
        (own, "2000", 3),
        (own, "1000", 4),
        (own, "1048588", 5),
    ]
    node.restart()
    partition = node.partitions.get("t", 0)
    assert partition is not None
    assert seen() == ("4000", 1, 4000)
    node.alter(TOPIC, "t", (key, DELETE, None))
    assert seen() == ("3000", 2, 3000)
    node.alter(BROKER, NODE, (own, DELETE, None))
    assert seen() == ("2000", 3, 2000)
    node.alter(BROKER, "", (own, DELETE, None))
    assert seen() == ("1000", 4, 1000)


def test_settings_in_other_units_count_but_are_no_synonyms_alone() -> None:
    """log.retention.hours gives retention.ms its value, but only log.retention.ms is listed as its synonym."""
    node = BrokerContext({"log.retention.hours": 2})
    node.create("t")
    (setting,) = node.describe(TOPIC, "t", "retention.ms", include_synonyms=True).configs
    assert (setting.value, setting.config_source, setting.synonyms) == ("7200000", 5, ())
    assert node.alter(BROKER, "", ("log.retention.ms", SET, "50")).error_code == 0
    (setting,) = node.describe(TOPIC, "t", "retention.ms", include_synonyms=True).configs
    assert (setting.value, setting.config_source) == ("50", 3)
    assert [(s.name, s.value, s.source) for s in setting.synonyms] == [
        ("log.retention.ms", "50", 3),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_types_and_documentation_of_settings_are_described() -> None:
    """The response has the type since version 3, and the documentation only on request."""
    node = BrokerContext()
    node.create("t")
    for setting in node.describe(TOPIC, "t", include_documentation=True).configs:
        row = TOPIC_SETTINGS[setting.name].setting
        assert (setting.config_type, setting.documentation) == (row.type.value, row.doc)
    assert all(setting.documentation is None for setting in node.describe(TOPIC, "t").configs)


def test_topics_of_one_request_share_the_descriptions_of_defaults() -> None:
    """Separate descriptions for ten thousand topics would take 136 MB. Only descriptions of defaults are shared, and
    the results equal those of separate requests.
    """
    node = BrokerContext()
    node.create("a", 1)
    node.create("b", 1, configs={"retention.ms": "7"})
    node.create("c", 1)

    def describe(*names: str) -> list[Any]:
        resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        return list(node.call(request, 4).results)

    together = describe("a", "b", "c")
    assert together == [result for name in "abc" for result in describe(name)]
    first, second, third = ({row.name: row for row in result.configs} for result in together)
    assert second["retention.ms"].value == "7"
    assert third["retention.ms"].value == first["retention.ms"].value == "604800000"
    options = DescribeOptions((), True, True)
    view, image = SettingsView(node.control.broker_config, node.control.topic_configs), node.topics.image
    rows = [{row.name: row for row in view.topic(image, name, options)} for name in "abc"]
    assert all(rows[0][name] is rows[2][name] for name in rows[0])
    assert [name for name in rows[0] if rows[0][name] is not rows[1][name]] == ["retention.ms"]


@pytest.mark.parametrize("operation", [4, -1])
def test_unknown_operations_are_refused(operation: int) -> None:
    node = BrokerContext()
    node.create("t")
    assert node.alter(TOPIC, "t", ("retention.ms", operation, "5")).error_code == 42


def test_an_invalid_or_validate_only_request_does_not_change_a_resource() -> None:
    """If one setting is invalid, the node makes none of the resource's changes."""
    node = BrokerContext()
    node.create("t")
    before = node.durable_state()
    assert node.alter(TOPIC, "t", ("flush.ms", SET, "5"), ("retention.ms", SET, "x")).error_code == 40
    assert node.alter(TOPIC, "t", ("flush.ms", SET, "5"), validate_only=True).error_code == 0
    assert node.durable_state() == before


def test_a_value_has_a_maximum_length() -> None:
    """The limit is 32,767 characters; the operation APPEND could exceed it."""
    node = BrokerContext()
    node.create("t")
    key = "leader.replication.throttled.replicas"
    replicas = ",".join(f"{number}:100" for number in range(10_000, 10_000 + 3_276))  # 32 759 characters
    assert node.alter(TOPIC, "t", (key, SET, replicas)).error_code == 0
    assert node.alter(TOPIC, "t", (key, APPEND, "1:100")).error_code == 0
    assert node.alter(TOPIC, "t", (key, APPEND, "2:100")).error_code == 40
    assert node.value(TOPIC, "t", key) == (replicas + ",1:100", 1)


def test_alter_configs_replaces_all_settings() -> None:
    """AlterConfigs removes settings that it does not name; null values and duplicate names get INVALID_REQUEST."""
    node = BrokerContext()
    node.create("t", configs={"flush.ms": "5", "retention.ms": "6"})
    for version in (0, 1, 2):
        result = node.alter_whole(TOPIC, "t", {"retention.ms": "7"}, version)
        assert (result.error_code, result.error_message) == (0, None)
        assert dict(node.topics.settings_of(TOPIC, "t")) == {"retention.ms": "7"}
    assert node.alter_whole(TOPIC, "t", {"retention.ms": None}).error_code == 42
    assert node.alter_whole(TOPIC, "t", {"nope": "1"}).error_code == 40
    assert node.alter_whole(TOPIC, "nope", {}).error_code == 3
    assert dict(node.topics.settings_of(TOPIC, "t")) == {"retention.ms": "7"}
    assert node.alter_whole(TOPIC, "t", {}).error_code == 0
    assert dict(node.topics.settings_of(TOPIC, "t")) == {}


def test_clients_without_rights_get_no_error_about_settings() -> None:
    """The request is checked first, then the client's rights, then the resource's settings."""
    node = BrokerContext()
    node.create("t")
    for api in (44, 33):
        node.apis[api].authorizer = Only()
    assert node.alter(TOPIC, "t", ("flush.ms", SET, None)).error_code == 42
    assert node.alter(TOPIC, "t", ("nope", SET, "1")).error_code == 29
    assert node.alter(TOPIC, "unknown", ("flush.ms", SET, "1")).error_code == 29
    assert node.alter_whole(GROUP, "g", {"nope": "1"}).error_code == 30
    assert node.alter(BROKER, NODE, ("message.max.bytes", SET, "5")).error_code == 31
    node.apis[32].authorizer = Only()
    assert [node.describe(kind, "t").error_code for kind in (TOPIC, GROUP, BROKER)] == [29, 30, 31]


# ---------------------------------------------------------------- the broker
@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("9", [("message.max.bytes", SET, "5")], 42),
        ("x", [("message.max.bytes", SET, "5")], 42),
        (NODE, [("num.partitions", SET, "5")], 42),
        (NODE, [("message.max.bytes", SET, "x")], 42),
        (NODE, [("message.max.bytes", SET, "-1")], 42),
        (NODE, [("message.max.bytes", APPEND, "5")], 40),
        ("", [("log.roll.ms", SET, "0")], 42),
        ("", [("compression.gzip.level", SET, "0")], 42),
        ("", [("compression.gzip.level", SET, "10")], 42),
        ("", [("compression.gzip.level", SET, "-1")], 0),
        ("", [("log.roll.jitter.ms", SET, "-1")], 42),
        ("", [("log.retention.ms", SET, "0")], 42),
        ("", [("log.retention.ms", SET, "-1")], 0),
        ("", [("log.retention.ms", SET, "-5")], 0),
        ("", [("log.cleaner.dedupe.buffer.size", SET, "1048576")], 42),
        ("", [("log.cleaner.io.max.bytes.per.second", SET, "Infinity")], 0),
        (NODE, [("log.cleanup.policy", APPEND, "compact")], 0),
        (NODE, [("listener.security.protocol.map", APPEND, "A:SSL")], 40),
        (NODE, [("sasl.kerberos.kinit.cmd", SET, "/bin/kinit")], 0),
        ("", [("sasl.kerberos.kinit.cmd", SET, "/bin/kinit")], 42),
        (NODE, [("my.plugin.setting", SET, "5")], 0),
        (NODE, [("nope", DELETE, None)], 0),
    ],
)
def test_invalid_changes_of_a_broker_are_refused(
    name: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    """Covers other brokers, static settings, invalid values, and changes of the cluster to a setting of one broker.

    They get INVALID_REQUEST, and an append to a setting that is no list in Kafka gets INVALID_CONFIG. As in Kafka,
    unknown names are stored.
    """
    node = BrokerContext()
    assert node.alter(BROKER, name, *changes).error_code == code


def test_the_brokers_settings_are_shown() -> None:
    """Each setting has its type, source and read-only flag. The resource "" describes the run-time settings of all
    brokers.
    """
    node = BrokerContext({"num.partitions": 3})
    shown = {c.name: c for c in node.describe(BROKER, NODE).configs}
    listed = kafka_settings().keys() - unlisted_settings()
    assert shown.keys() == Config.SETTINGS.keys() | listed
    threads = shown["num.io.threads"]
    assert (threads.value, threads.config_source, threads.read_only, threads.config_type) == ("8", 5, False, 3)
    partitions = shown["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only, partitions.config_type) == (
        "3",
        4,
        True,
        3,
    )
    assert (shown["message.max.bytes"].read_only, shown["message.max.bytes"].config_source) == (False, 5)
    assert [(s.name, s.value) for s in node.describe(BROKER, "").configs] == [("min.insync.replicas", "1")]
    node.alter(BROKER, "", ("message.max.bytes", SET, "5"), ("my.plugin", SET, "secret"))
    defaults = {c.name: (c.value, c.config_source, c.is_sensitive) for c in node.describe(BROKER, "").configs}
    assert defaults == {
        "message.max.bytes": ("5", 3, False),
        "min.insync.replicas": ("1", 3, False),
        "my.plugin": (None, 3, True),
    }
    (unknown,) = node.describe(BROKER, NODE, "my.plugin").configs
    assert (unknown.value, unknown.is_sensitive, unknown.config_type, unknown.read_only) == (None, True, 0, True)
    assert node.config.message_max_bytes == 5


def test_min_insync_replicas_of_the_cluster_cannot_be_removed_with_eligible_leader_replicas() -> None:
    """With the feature, the cluster has a dynamic value of min.insync.replicas. This value cannot be removed, and a
    single broker cannot have a different value.
    """
    node = BrokerContext({"min.insync.replicas": 2})
    key = "min.insync.replicas"
    assert node.alter(BROKER, NODE, (key, SET, "3")).error_code == 40
    assert node.alter(BROKER, NODE, (key, DELETE, None)).error_code == 40
    assert node.alter(BROKER, "", (key, DELETE, None)).error_code == 40
    assert node.alter(BROKER, "", (key, SET, "1")).error_code == 0
    assert node.config.min_insync_replicas == 1
    level = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
    assert node.call(UpdateFeaturesRequest(feature_updates=[level])).error_code == 0
    assert node.alter(BROKER, NODE, (key, SET, "3")).error_code == 0
    assert node.alter(BROKER, "", (key, DELETE, None)).error_code == 0
    node.records()
    level = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1)
    assert node.call(UpdateFeaturesRequest(feature_updates=[level])).error_code == 0
    assert node.records() == [
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        ConfigRecord(resource_type=BROKER, resource_name="", name=key, value="2"),
        ConfigRecord(resource_type=BROKER, resource_name=NODE, name=key, value=None),
    ]


def test_passwords_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """DescribeConfigs returns passwords, including those in synonyms, as null and sensitive."""
    secret = Setting("ssl.key.password", SettingType.PASSWORD, None, "A secret.", dynamic=True)
    monkeypatch.setattr(Config, "SETTINGS", {**Config.SETTINGS, secret.name: secret})
    node = BrokerContext({"ssl.key.password": "hunter2"})
    (shown,) = node.describe(BROKER, NODE, secret.name, include_synonyms=True).configs
    assert (shown.value, shown.is_sensitive, shown.config_type) == (None, True, 9)
    assert [(s.name, s.value, s.source) for s in shown.synonyms] == [(secret.name, None, 4)]


# ---------------------------------------------------------------- groups
def test_a_groups_own_setting_applies_at_once_until_it_is_removed() -> None:
    """The effective value is the group's own, or else the broker's. Each change calls the functions that were passed to
    `observe`.
    """
    node = BrokerContext({"group.consumer.heartbeat.interval.ms": 6000})
    groups, key = node.control.group_configs, "consumer.heartbeat.interval.ms"
    notified: list[str] = []
    groups.observe(notified.append)
    assert groups.get("g", key) == 6000
    assert node.alter(GROUP, "g", (key, SET, " 7000 ")).error_code == 0
    assert (groups.get("g", key), groups.get("other", key)) == (7000, 6000)
    assert node.value(GROUP, "g", key) == ("7000", 8)
    node.restart()
    groups = node.control.group_configs
    assert groups.get("g", key) == 7000
    assert node.alter(GROUP, "g", (key, DELETE, None)).error_code == 0
    assert groups.get("g", key) == 6000
    assert notified == ["g"]
    assert groups.get("g", "share.renew.acknowledge.enable") is True


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("", [("consumer.heartbeat.interval.ms", SET, "5000")], 42),
        ("g", [("nope", SET, "5")], 40),
        ("g", [("retention.ms", SET, "5")], 40),
        ("g", [("consumer.heartbeat.interval.ms", SET, "x")], 40),
        ("g", [("consumer.heartbeat.interval.ms", SET, "4999")], 40),
        ("g", [("consumer.heartbeat.interval.ms", SET, "15001")], 40),
        ("g", [("consumer.session.timeout.ms", SET, "60000")], 0),
        ("g", [("consumer.session.timeout.ms", SET, "60001")], 40),
        ("g", [("streams.num.standby.replicas", SET, "2")], 0),
        ("g", [("streams.num.standby.replicas", SET, "3")], 40),
        ("g", [("share.delivery.count.limit", SET, "11")], 40),
        ("g", [("share.isolation.level", APPEND, "read_committed")], 40),
        ("g", [("nope", DELETE, None)], 0),
        ("g", [], 0),
    ],
)
def test_invalid_changes_of_a_group_are_refused(
    name: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    """Unknown settings, invalid values and values outside of the broker's bounds get INVALID_CONFIG."""
    assert BrokerContext().alter(GROUP, name, *changes).error_code == code


def test_a_value_outside_of_the_bounds_names_the_brokers_setting() -> None:
    """The error message names the violated bound. Covers a setting with only an upper bound, and a setting with two
    bounds.
    """
    node = BrokerContext()
    for name, value, bound in (
        ("streams.num.standby.replicas", "3", "above group.streams.max.standby.replicas=2"),
        ("streams.session.timeout.ms", "1", "below group.streams.min.session.timeout.ms=45000"),
    ):
        response = node.alter(GROUP, "g", (name, SET, value))
        assert (response.error_code, response.error_message) == (40, f"{name}='{value}' is {bound}")


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    """If the group sets only one of the two settings, its value is compared with the effective value of the other
    setting.
    """
    bounds = {
        "group.consumer.min.session.timeout.ms": 10,
        "group.consumer.min.heartbeat.interval.ms": 1,
        "group.consumer.heartbeat.interval.ms": 50,
        "group.consumer.session.timeout.ms": 100,
    }
    node = BrokerContext(bounds)
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert node.alter(GROUP, "g", (heartbeat, SET, "100")).error_code == 40
    assert node.alter(GROUP, "g", (session, SET, "50")).error_code == 40
    assert node.alter(GROUP, "g", (session, SET, "51")).error_code == 0
    assert node.alter(GROUP, "g", (heartbeat, SET, "51")).error_code == 40
    assert node.alter(GROUP, "g", (heartbeat, SET, "50"), (session, SET, "60")).error_code == 0


def test_a_groups_value_stays_within_bounds_that_became_narrower() -> None:
    """After a restart with narrower bounds, the nearest allowed value applies. The stored value does not change."""
    node = BrokerContext()
    node.alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "60000"))
    node.settings["group.consumer.max.session.timeout.ms"] = "50000"
    node.restart()
    assert node.control.group_configs.get("g", "consumer.session.timeout.ms") == 50_000
    assert node.value(GROUP, "g", "consumer.session.timeout.ms") == ("60000", 8)
