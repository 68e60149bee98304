"""The area of settings: every setting of topics, groups, client metrics and brokers, with values at and beyond bounds.

Test programs only validate the settings of brokers, because all test programs would see a change.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.broker.configs.client_metrics_config import CLIENT_METRICS_SETTINGS
from kcore.broker.configs.group_config import GROUP_SETTINGS
from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.config.kafka_settings import UNSUPPORTED, kafka_settings, unlisted_settings
from kcore.config.setting import Setting, SettingType
from tests.apache.broker import PROPERTIES
from tools.differential.admin import APPEND, DELETE, GROUP, SET, SUBTRACT, TOPIC, Admin
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS

BROKER, METRICS = 4, 16
NOT_COMPARED: Final = (
    "ssl.", "sasl.", "listener", "advertised.", "remote.", "log.dir", "log.local.", "metric.", "password.",
    "controller.quorum.", "controller.listener.", "process.roles", "broker.id",
)  # fmt: skip
"""Prefixes of brokers' settings with documented differences, or with values that depend on the machine."""

BLANKS: Final = ("", " ", "\t1", " 1 ", "x", "null")
NUMBERS: Final = (
    "0", "1", "-1", "-2", "2", "10", "1000", "1001", "+5", "007", "1.0", "1e3", "0x10", "1_000", "1L", "--1", "٣",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808",
)  # fmt: skip
DECIMALS: Final = (
    "0", "1", "0.5", "1.0", "-0.1", "1.1", "1e-3", ".5", "1.", "0.5f", "0.5d", "NaN", "Infinity", "-0.0", "0x1p-1",
)  # fmt: skip
BOOLEANS: Final = ("true", "false", "TRUE", "False", " true ", "yes", "1", "t")
LISTS: Final = (
    "", "a", "a,b", "a, b", "a,,b", ",", "a,a", "*", "0:1", "0:1,1:0", "0:1,0:1", "0:1,", ",*", "*,0:1", "0:", "x:y",
    " delete ",
)  # fmt: skip
TEXTS: Final = (
    "delete", "compact", "delete,compact", "compact,delete", "delete,delete", "Delete", "none", "CreateTime",
    "LogAppendTime", "createtime", "producer", "zstd", "gzip", "lz4", "snappy", "uncompressed", "ZSTD", "earliest",
    "latest", "EARLIEST", "by_duration:PT1H", "by_duration:P1D", "by_duration:-PT1H", "by_duration:", "by_duration:1h",
    "read_committed", "read_uncommitted", "READ_COMMITTED", "client_id=a", "client_id=(", "client_id", "x=y",
    "org.apache.", "*",
)  # fmt: skip
VALUES: Final[Mapping[SettingType, tuple[str, ...]]] = {
    SettingType.INT: NUMBERS,
    SettingType.SHORT: (*NUMBERS, "32767", "32768"),
    SettingType.LONG: NUMBERS,
    SettingType.DOUBLE: DECIMALS,
    SettingType.BOOLEAN: BOOLEANS,
    SettingType.LIST: LISTS + TEXTS,
    SettingType.STRING: TEXTS + LISTS,
}
GIVEN: Final = frozenset(line.partition("=")[0] for line in PROPERTIES.splitlines())
"""Settings of the Kafka broker of the tests. Some of them differ from those of the kcore server."""
BROKER_SETTINGS: Final[Mapping[str, Setting]] = {
    name: setting
    for name, setting in kafka_settings().items()
    if setting.type in VALUES
    and name not in UNSUPPORTED
    and name not in unlisted_settings()
    and name not in GIVEN
    and not name.startswith(NOT_COMPARED)
}
KINDS: Final[Mapping[int, Mapping[str, Setting]]] = {
    TOPIC: {name: row.setting for name, row in TOPIC_SETTINGS.items() if not name.startswith("remote.")},
    GROUP: {name: row.setting for name, row in GROUP_SETTINGS.items()},
    METRICS: CLIENT_METRICS_SETTINGS,
    BROKER: BROKER_SETTINGS,
}


class Settings:
    """Programs that change and describe settings."""

    NAME = "settings"
    CALLS: Mapping[str, Call] = {
        name: Admin.CALLS[name] for name in ("create_topic", "change", "replace", "describe", "delete")
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns a topic and 8 to 20 requests about settings."""
        drawer = _Drawer(chance, name)
        first = [Step(0, "create_topic", {"name": f"{name}-a", "partitions": 1})]
        return first + [drawer.step() for _ in range(chance.randrange(8, 20))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.names = {TOPIC: f"{name}-a", GROUP: f"{name}-g", METRICS: f"{name}-m"}
        self.created = 0

    def step(self) -> Step:
        kind = self.chance.choices(list(KINDS), [5, 3, 2, 5])[0]
        name = self.names.get(kind) or self.chance.choice(["", "", "1"])
        call, arguments = self.chance.choices([self._change, self._replace, self._describe], [6, 2, 3])[0](kind)
        if kind == TOPIC and self.chance.random() < 0.2:
            call, arguments = self._create()
            return Step(0, call, arguments)
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, {"resource": kind, "name": name, **arguments})

    def _value(self, setting: Setting) -> str:
        bounds = [str(int(bound) + delta) for bound in (setting.low, setting.high) if bound is not None
                  for delta in (-1, 0, 1)]  # fmt: skip
        choices = [*VALUES[setting.type], *bounds, *bounds, *(setting.choices or ())]
        return str(self.chance.choice(BLANKS if self.chance.random() < 0.1 else choices))

    def _rows(self, kind: int) -> list[Setting]:
        known = KINDS[kind]
        return [known[key] for key in self.chance.sample(sorted(known), min(len(known), self.chance.choice([1, 1, 2])))]

    def _change(self, kind: int) -> tuple[str, dict[str, Any]]:
        changes: list[tuple[str, int, str | None]] = []
        for setting in self._rows(kind):
            operation = self.chance.choices([SET, DELETE, APPEND, SUBTRACT], [80, 6, 7, 7])[0]
            null = operation == DELETE or self.chance.random() < 0.03
            changes.append((setting.name, operation, None if null else self._value(setting)))
        return "change", {
            "changes": changes, "check": kind == BROKER or self.chance.random() < 0.2,
            "version": self.chance.choice([0, 1]),
        }  # fmt: skip

    def _replace(self, kind: int) -> tuple[str, dict[str, Any]]:
        values = {setting.name: self._value(setting) for setting in self._rows(kind)}
        return "replace", {
            "values": values, "check": kind == BROKER or self.chance.random() < 0.2,
            "version": self.chance.choice([0, 1, 2]),
        }  # fmt: skip

    def _describe(self, kind: int) -> tuple[str, dict[str, Any]]:
        some = [setting.name for setting in self._rows(kind)]
        return "describe", {
            "keys": some if kind == BROKER or self.chance.random() < 0.3 else None,
            "synonyms": self.chance.random() < 0.3,
            "version": self.chance.choice([1, 2, 3, 4]),
        }

    def _create(self) -> tuple[str, dict[str, Any]]:
        self.created += 1
        settings = {setting.name: self._value(setting) for setting in self._rows(TOPIC)}
        return "create_topic", {
            "name": f"{self.names[TOPIC]}-{self.created}", "partitions": 1, "settings": settings,
            "validate_only": self.chance.random() < 0.3, "version": self.chance.choice([2, 5, 7]),
        }  # fmt: skip
