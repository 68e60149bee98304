"""The settings that heartbeats of consumer, share and streams groups need, cached by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kcore.config.bounds import beyond_bounds
from kcore.errors import ConfigError

if TYPE_CHECKING:
    from kcore.config.node import Config

S = TypeVar("S")


class GroupSettings(Protocol):
    """The effective settings of groups: the group's own setting, else the broker's."""

    def get(self, group_id: str, key: str) -> Any:
        """Returns the value of a setting such as `consumer.session.timeout.ms`."""
        ...


class BrokerSettings:
    """A `GroupSettings` for clusters in which groups have no settings of their own: returns the broker's settings."""

    __slots__ = ("_config",)

    def __init__(self, config: Config) -> None:
        self._config = config

    def get(self, group_id: str, key: str) -> Any:
        """Returns the broker's setting."""
        return self._config.get(f"group.{key}")


class SettingsCache(Generic[S]):
    """The base class of consumer, share and streams services: caches the settings of each group.

    The cache is valid until a setting changes or the group is deleted.

    Args:
        source: the effective settings of groups.
        names: the settings to cache.
        build: creates the cached object from their values, in the order of the names.

    Attributes:
        settings_of: the cached objects by group id. The fast path of heartbeats reads this attribute; other code calls
            `settings`.
    """

    __slots__ = ("_build", "_setting_names", "_settings", "settings_of")

    def __init__(self, source: GroupSettings, names: Sequence[str], build: Callable[..., S]) -> None:
        self._settings = source
        self._setting_names = names
        self._build = build
        self.settings_of: dict[str, S] = {}

    def settings(self, group_id: str) -> S:
        """Returns the effective settings of a group."""
        cached = self.settings_of.get(group_id)
        if cached is None:
            get = self._settings.get
            cached = self.settings_of[group_id] = self._build(*[get(group_id, name) for name in self._setting_names])
        return cached

    def settings_changed(self) -> None:
        """Discards the cached settings after a setting of a group or of the broker has changed."""
        self.settings_of = {}

    def forget(self, group_id: str) -> None:
        """Discards the cached settings of a deleted group."""
        self.settings_of.pop(group_id, None)


def check_settings(config: Config, kind: str, bounded: Iterable[str]) -> None:
    """Refuses contradictory broker settings of one kind of groups, as Kafka does at startup.

    Args:
        config: the broker's settings.
        kind: the kind of groups, as in the names of the settings.
        bounded: the settings whose value must be within bounds (`group.KIND.min.*`, `group.KIND.max.*`), without the
            prefix `group.KIND.`.

    Raises:
        ConfigError: a value is outside its bounds, or the session timeout is not longer than the heartbeat interval.
    """
    for setting in bounded:
        name = f"group.{kind}.{setting}"
        fault = beyond_bounds(config, name, config.get(name))
        if fault is not None:
            raise ConfigError(fault)
    session, interval = f"group.{kind}.session.timeout.ms", f"group.{kind}.heartbeat.interval.ms"
    session_ms, interval_ms = config.get(session), config.get(interval)
    if interval_ms >= session_ms:
        raise ConfigError(f"{interval}={interval_ms} must be below {session}={session_ms}")
