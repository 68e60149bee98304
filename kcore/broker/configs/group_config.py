"""Settings of single groups (KIP-848, KIP-932, KIP-1071): the schema, and the effective values of each group."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.broker.configs.values import InvalidValueError, read_value
from kcore.broker.metadata.image import ConfigType
from kcore.config.setting import Setting, SettingType
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics
    from kcore.config.node import Config


logger = logging.getLogger(__name__)


class GroupSetting(NamedTuple):
    """A setting that a single group can override.

    Attributes:
        setting: name, type, default, absolute bounds, meaning.
        broker: the broker's setting that applies to groups without their own value; None: the default applies.
        least: the broker's setting with the lower bound.
        most: the broker's setting with the upper bound.
    """

    setting: Setting
    broker: str | None
    least: str | None
    most: str | None


_DURATION = re.compile(
    r"[+-]?P(?!$)(?:[+-]?\d+D)?(?:T(?=[+-]?[\d.])(?:[+-]?\d+H)?(?:[+-]?\d+M)?(?:[+-]?\d+(?:[.,]\d{0,9})?S)?)?",
    re.IGNORECASE,
)


def _offset_reset_fault(value: str) -> str | None:
    kind, colon, duration = value.partition(":")
    if kind in {"latest", "earliest"} and not colon:
        return None
    # A number beyond int64 would raise an error when the duration is used; Java refuses such a number, too.
    if kind == "by_duration" and _DURATION.fullmatch(duration) and not re.search(r"-|\d{19}", duration):
        return None
    return "neither latest nor earliest nor by_duration: with an ISO 8601 duration"


def _milliseconds(group_type: str, name: str, default: int, doc: str, least: int = 1) -> GroupSetting:
    setting = Setting(f"{group_type}.{name}", SettingType.INT, default, doc, low=least, dynamic=True)
    return _bounded(group_type, name, setting)


def _bounded(group_type: str, name: str, setting: Setting) -> GroupSetting:
    prefix = f"group.{group_type}."
    return GroupSetting(setting, prefix + name, f"{prefix}min.{name}", f"{prefix}max.{name}")


def _own(name: str, kind: SettingType, default: Any, doc: str, **more: Any) -> GroupSetting:
    return GroupSetting(Setting(name, kind, default, doc, dynamic=True, **more), None, None, None)


_ROWS: tuple[GroupSetting, ...] = (
    *(
        row
        for group_type in ("consumer", "share", "streams")
        for row in (
            _milliseconds(
                group_type, "session.timeout.ms", 45_000, "Time without a heartbeat after which a member leaves."
            ),
            _milliseconds(group_type, "heartbeat.interval.ms", 5_000, "Time between two heartbeats."),
            _milliseconds(group_type, "assignment.interval.ms", 1_000, "Least time between two target assignments.", 0),
        )
    ),
    _milliseconds("share", "record.lock.duration.ms", 30_000, "Time for which a delivered record is locked.", 1_000),
    _bounded(
        "share",
        "delivery.count.limit",
        Setting(
            "share.delivery.count.limit",
            SettingType.INT,
            5,
            "Maximum number of deliveries of a record.",
            low=2,
            dynamic=True,
        ),
    ),
    _bounded(
        "share",
        "partition.max.record.locks",
        Setting(
            "share.partition.max.record.locks",
            SettingType.INT,
            2_000,
            "Maximum number of locked records of a partition.",
            low=100,
            dynamic=True,
        ),
    ),
    _own(
        "share.auto.offset.reset",
        SettingType.STRING,
        "latest",
        "Start offset of a share group: latest, earliest or by_duration:PnDTnHnMn.nS.",
        check=_offset_reset_fault,
    ),
    _own(
        "share.isolation.level",
        SettingType.STRING,
        "read_uncommitted",
        "Isolation level of a share group: read_uncommitted includes records of open and aborted transactions.",
        choices=("read_committed", "read_uncommitted"),
    ),
    _own("share.renew.acknowledge.enable", SettingType.BOOLEAN, True, "Allows members to renew locks (KIP-1222)."),
    GroupSetting(
        Setting(
            "streams.initial.rebalance.delay.ms",
            SettingType.INT,
            3_000,
            "Time for which an empty streams group waits for more members.",
            low=0,
            dynamic=True,
        ),
        "group.streams.initial.rebalance.delay.ms",
        None,
        None,
    ),
    GroupSetting(
        Setting(
            "streams.num.standby.replicas",
            SettingType.INT,
            0,
            "Standby replicas of each stateful task.",
            low=0,
            dynamic=True,
        ),
        "group.streams.num.standby.replicas",
        None,
        "group.streams.max.standby.replicas",
    ),
)

GROUP_SETTINGS: dict[str, GroupSetting] = {row.setting.name: row for row in sorted(_ROWS, key=lambda r: r.setting.name)}
"""Name -> setting, sorted by name: the settings of Kafka 4.3."""


_BROKER_ATTRIBUTES: dict[str, str | None] = {
    name: None if row.broker is None else row.broker.replace(".", "_") for name, row in GROUP_SETTINGS.items()
}
"""Name of a group's setting -> the attribute of `Config` that has its default. Every heartbeat reads this table."""


def read_group_settings(own: Mapping[str, str], config: Config) -> dict[str, Any]:
    """Parses and checks all settings of a group.

    Args:
        own: the group's own settings, name -> text.
        config: the broker's settings: bounds, and the fallback for settings that the group does not have.

    Raises:
        InvalidValueError: a setting is unknown, a value is invalid or out of bounds, or a session timeout is not
            longer than the heartbeat interval.
    """
    values: dict[str, Any] = {}
    for name, text in own.items():
        row = GROUP_SETTINGS.get(name)
        if row is None:
            raise InvalidValueError(f"a group has no setting {name!r}")
        value = values[name] = read_value(row.setting, text)
        low, high = _bounds(row, config)
        if low is not None and value < low:
            raise InvalidValueError(f"{name}={text!r} is below {row.least}={low}")
        if high is not None and value > high:
            raise InvalidValueError(f"{name}={text!r} is above {row.most}={high}")
    for group_type in ("consumer", "share", "streams"):
        session, heartbeat = f"{group_type}.session.timeout.ms", f"{group_type}.heartbeat.interval.ms"
        if session in values or heartbeat in values:
            session_ms = values.get(session, config.get(f"group.{session}"))
            heartbeat_ms = values.get(heartbeat, config.get(f"group.{heartbeat}"))
            if heartbeat_ms >= session_ms:
                raise InvalidValueError(f"{heartbeat}={heartbeat_ms} must be below {session}={session_ms}")
    return values


def _bounds(row: GroupSetting, config: Config) -> tuple[Any, Any]:
    return (
        None if row.least is None else config.get(row.least),
        None if row.most is None else config.get(row.most),
    )


class GroupConfigs(MetadataListener):
    """Effective settings of each group: its own value, else the broker's.

    A group's own value is clamped to the broker's current bounds, which may have become narrower since the value was
    set.

    Args:
        topics: the metadata with the settings. The constructor adds this object as a listener of the metadata.
        config: the broker's settings.
    """

    __slots__ = ("_broker_changes", "_config", "_observers", "_own", "_topics")

    def __init__(self, topics: Topics, config: Config) -> None:
        self._topics = topics
        self._config = config
        self._broker_changes = 0
        # group -> (number of the broker's changes before, own settings). Stale settings are read again at their next
        # use: those of all groups at once would take long.
        self._own: dict[str, tuple[int, dict[str, Any]]] = {}
        self._observers: list[Callable[[str], None]] = []
        topics.listen(self)

    def get(self, group_id: str, key: str) -> Any:
        """Returns the effective value of a setting, such as `consumer.session.timeout.ms`, of a group, existing or
        not.
        """
        own = self._own.get(group_id)
        if own is not None:
            if own[0] != self._broker_changes:
                own = self._read(group_id)
            if key in own[1]:
                return own[1][key]
        attribute = _BROKER_ATTRIBUTES[key]
        return GROUP_SETTINGS[key].setting.default if attribute is None else getattr(self._config, attribute)

    def own(self, group_id: str) -> Mapping[str, str]:
        """Returns the group's own settings, name -> text."""
        return self._topics.settings_of(ConfigType.GROUP, group_id)

    def observe(self, callback: Callable[[str], None]) -> None:
        """Calls `callback(group_id)` after each change of a group's settings."""
        self._observers.append(callback)

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Reads the changed group's settings again.

        If the broker's bounds changed, reads the settings of all groups.
        """
        if resource_type == ConfigType.BROKER:
            self._broker_changes += 1
        elif resource_type == ConfigType.GROUP:
            self._read(name)
            for callback in self._observers:
                callback(name)

    def _read(self, group_id: str) -> tuple[int, dict[str, Any]]:
        own: dict[str, Any] = {}
        for name, text in self.own(group_id).items():
            row = GROUP_SETTINGS.get(name)
            try:
                value = None if row is None else read_value(row.setting, text)
            except InvalidValueError as error:
                logger.warning(
                    "group %s: ignoring a setting that is not valid in this version: %s; alter or delete the setting "
                    "with kafka-configs",
                    group_id,
                    error,
                )
                continue
            if row is None:
                continue  # a later version set it
            low, high = _bounds(row, self._config)
            if low is not None and value < low:
                value = low
            if high is not None and value > high:
                value = high
            own[name] = value
        read = self._broker_changes, own
        if own:
            self._own[group_id] = read
        else:
            self._own.pop(group_id, None)
        return read
