"""Services of a node for its share groups; one object for all of its group shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.assignors import load_all
from kcore.errors import ConfigError
from kcore.group.consumer.services import BrokerSettings, GroupSettings

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.share.persister import Persister

NO_END: Final = None
"""The end offset of a partition that this node does not lead."""


class ShareSettings(NamedTuple):
    """The settings of one group that every heartbeat needs.

    Attributes:
        session_timeout_ms: the session timeout of members.
        heartbeat_interval_ms: the interval between heartbeats.
        assignment_interval_ms: minimum time between two targets (KIP-1263).
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def check_settings(config: Config) -> None:
    """Refuses contradictory broker settings of share groups, as Kafka does at startup.

    Raises:
        ConfigError: a value is outside the bounds for groups' own settings, a session timeout is not longer than the
            heartbeat interval, or there is not exactly one assignor.
    """
    for setting in (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "assignment.interval.ms",
        "delivery.count.limit",
        "record.lock.duration.ms",
        "partition.max.record.locks",
    ):
        name, low, high = f"group.share.{setting}", f"group.share.min.{setting}", f"group.share.max.{setting}"
        value, least, most = config.get(name), config.get(low), config.get(high)
        if not least <= value <= most:
            raise ConfigError(f"{name}={value} must be within {low}={least} and {high}={most}")
    session_ms, interval_ms = config.group_share_session_timeout_ms, config.group_share_heartbeat_interval_ms
    if interval_ms >= session_ms:
        raise ConfigError(
            f"group.share.heartbeat.interval.ms={interval_ms} must be below group.share.session.timeout.ms={session_ms}"
        )
    if len(config.group_share_assignors) != 1:
        raise ConfigError("group.share.assignors must name exactly one assignor")


class ShareGroupServices:
    """Settings, assignor and persister.

    Args:
        config: the node's settings.
        settings: groups' own settings; None: there are none.
        enabled: returns True if share groups are enabled (`share.version`).
        end_offset: returns the end offset of a partition (topic, partition); None if this node does not lead it.

    Raises:
        ConfigError: settings contradict each other, or the assignor cannot be loaded.

    Attributes:
        config: the node's settings.
        enabled: whether share groups are served.
        assignor_name: the name of the assignor.
        assignor: the assignor.
        persister: the durable state of share partitions; set once the node has one.
        settings_of: the cached settings of groups, by group id; the fast path of heartbeats reads it.
        end_offset: see the argument.
        on_left: called when a member has left its group: group, member, True if it was the last one. It only
            schedules work, because it is called during a decision.
    """

    __slots__ = (
        "_enabled",
        "_settings",
        "assignor",
        "assignor_name",
        "config",
        "enabled",
        "end_offset",
        "on_left",
        "persister",
        "settings_of",
    )

    def __init__(
        self,
        config: Config,
        *,
        settings: GroupSettings | None = None,
        enabled: Callable[[], bool] = lambda: True,
        end_offset: Callable[[str, int], int | None] = lambda topic, partition: NO_END,
    ) -> None:
        check_settings(config)
        self.config = config
        ((self.assignor_name, self.assignor),) = load_all(config.group_share_assignors, "share").items()
        self.persister: Persister | None = None
        self.end_offset = end_offset
        self.on_left: Callable[[str, str, bool], None] = lambda group_id, member_id, last: None
        self._enabled = enabled
        self._settings: GroupSettings = settings if settings is not None else BrokerSettings(config)
        self.settings_of: dict[str, ShareSettings] = {}
        self.enabled = False
        self.feature_changed()

    def feature_changed(self) -> None:
        """Checks again whether share groups are enabled, after a feature level changed."""
        self.enabled = self._enabled()

    def setting(self, group_id: str, name: str) -> Any:
        """Returns the effective value of a setting of a group, such as `share.isolation.level`."""
        return self._settings.get(group_id, name)

    def settings(self, group_id: str) -> ShareSettings:
        """Returns the settings of a group that heartbeats need."""
        cached = self.settings_of.get(group_id)
        if cached is None:
            get = self._settings.get
            cached = self.settings_of[group_id] = ShareSettings(
                get(group_id, "share.session.timeout.ms"),
                get(group_id, "share.heartbeat.interval.ms"),
                get(group_id, "share.assignment.interval.ms"),
            )
        return cached

    def settings_changed(self) -> None:
        """Discards the cached settings after one of a group or of the broker changed."""
        self.settings_of = {}

    def forget(self, group_id: str) -> None:
        """Discards the cached settings of a deleted group."""
        self.settings_of.pop(group_id, None)
