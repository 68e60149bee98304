"""Apache Kafka's broker settings that kcore does not use, from the generated file `kafka_settings.json`.

kcore validates, stores and describes these settings as Kafka does, so that Kafka's configuration files and tools work.
Most of them have no meaning in kcore: numbers of threads, sizes of buffers, replication, the quorum. A node refuses the
settings in `UNSUPPORTED` unless they have their default values, because other values would change what clients may do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from kcore.config.setting import Setting, SettingType
from kcore.errors import ConfigError
from kcore.json_text import parse_json

NO_EFFECT = "A setting of Apache Kafka that has no effect in kcore."

UNSUPPORTED: Mapping[str, str] = {
    "alter.config.policy.class.name": "policies are not supported",
    "client.quota.callback.class": "callbacks of quotas are not supported",
    "config.providers": "configuration providers are not supported",
    "cordoned.log.dirs": "there is only one folder",
    "create.topic.policy.class.name": "policies are not supported",
    "delegation.token.secret.key": "delegation tokens are not supported",
    "principal.builder.class": "use ssl.principal.mapping.rules",
    "remote.log.storage.system.enable": "tiered storage is not supported",
    "security.providers": "Java's security providers are not supported",
    "ssl.engine.factory.class": "Java's TLS engines are not supported",
    "transaction.two.phase.commit.enable": "two-phase commits are not supported",
    "unstable.api.versions.enable": "unstable versions are not served",
}
"""Mapping from each setting that kcore refuses to the reason or the alternative.

If kcore ignored these settings, a limit or a guarantee that the operator has configured would be missing.
"""

NO_WARNING = frozenset(
    {
        "auto.leader.rebalance.enable",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "controller.listener.names",
        "inter.broker.listener.name",
        "process.roles",
        "quota.window.num",
        "quota.window.size.seconds",
        "sasl.mechanism.inter.broker.protocol",
        "security.inter.broker.protocol",
    }
)
"""Names of Kafka settings that `Config.without_effect` does not list, although kcore's own table lacks them.

These settings have an effect in kcore, or they name listeners.
"""

KEPT_FOR_TOOLS = frozenset(
    {
        "log.flush.interval.messages",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.preallocate",
        "log.segment.delete.delay.ms",
        "unclean.leader.election.enable",
    }
)
"""Settings without an effect that are in kcore's table of settings, because Kafka's tools read and change them."""

AT_START = frozenset({"sasl.jaas.config"})
"""Settings that Kafka changes at run time and kcore reads only when it starts."""

LOWEST: Mapping[str, int] = {"log.cleaner.dedupe.buffer.size": 1_048_577, "log.roll.jitter.ms": 0}
"""Mapping from settings to their minimum, where Kafka's definition of the setting lacks it, but its brokers check it.

The minimum of the buffer is that of one cleaner thread.
"""

THREAD_POOLS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
"""Settings that are numbers of threads. In Kafka, one change at run time may at most double or halve such a number."""


@cache
def _rows() -> list[dict[str, Any]]:
    text = resources.files("kcore.config").joinpath("kafka_settings.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = parse_json(text)
    return rows


@cache
def kafka_settings() -> Mapping[str, Setting]:
    """Returns every setting of a broker of Apache Kafka 4.3.1, by name; an unset default is None."""
    return {row["name"]: _setting(row) for row in _rows()}


@cache
def described_order() -> Mapping[str, int]:
    """Returns a mapping from each setting in Kafka's DescribeConfigs response to its position there."""
    return {row["name"]: row["position"] for row in _rows() if row.get("listed", True)}


@cache
def unlisted_settings() -> frozenset[str]:
    """Returns the names that DescribeConfigs lists only if they are set: Kafka's internal settings and the replication
    quotas.
    """
    return frozenset(row["name"] for row in _rows() if not row.get("listed", True))


@cache
def per_broker_settings() -> frozenset[str]:
    """Returns the names of the settings that may change at run time for one broker, but not for the whole cluster."""
    return frozenset(row["name"] for row in _rows() if row.get("dynamic") == "per-broker")


def _setting(row: dict[str, Any]) -> Setting:
    name, choices = row["name"], row.get("choices")
    ignore_case = row.get("ignore_case", False)
    if ignore_case and choices is not None:
        choices = [choice.lower() for choice in choices]
    setting = Setting(
        name,
        SettingType[row["type"]],
        None,
        NO_EFFECT,
        row.get("low", LOWEST.get(name)),
        row.get("high"),
        None if choices is None else tuple(choices),
        dynamic="dynamic" in row and name not in UNSUPPORTED and name not in AT_START,
        ignore_case=ignore_case,
    )
    default = row["default"]
    if default is None:
        return setting
    # A default may be out of the bounds that hold for values that are set.
    free = setting._replace(low=None, high=None, choices=None, check=None)
    return setting._replace(default=free.parse(default))


def single_value(name: str, value: Any) -> Any:
    """Returns the value of a setting that is a list in Kafka and a single value in kcore.

    Raises:
        ConfigError: the list has several values.
    """
    if not isinstance(value, tuple):
        return value
    if len(value) != 1:
        raise ConfigError(f"{name}={','.join(value)}: kcore keeps its data in a single folder; set only one path")
    return value[0]
