"""Services of a node for its share groups; one object for all of its group shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.assignors import load_all
from kcore.errors import ConfigError
from kcore.group.settings import BrokerSettings, SettingsCache, check_settings
from kcore.group.share.end_offsets import LocalEndOffsets

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.group.settings import GroupSettings
    from kcore.share.persister import Persister

SETTINGS: Final = ("share.session.timeout.ms", "share.heartbeat.interval.ms", "share.assignment.interval.ms")
"""The settings of a group that every heartbeat needs, in the order of `ShareSettings`."""

BOUNDED: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
    "delivery.count.limit",
    "record.lock.duration.ms",
    "partition.max.record.locks",
)
"""The settings of which a group may have its own value, within bounds that the broker's settings define."""


class ShareSettings(NamedTuple):
    """The settings of one share group that the coordinator uses at each heartbeat.

    Attributes:
        session_timeout_ms: the time in ms after which a member without a heartbeat is removed.
        heartbeat_interval_ms: the time in ms after which a member sends its next heartbeat.
        assignment_interval_ms: the minimum time in ms between two target assignments (KIP-1263).
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class ShareGroupServices(SettingsCache[ShareSettings]):
    """Settings, assignor and persister.

    Args:
        config: the node's settings.
        settings: groups' own settings; None: there are none.
        enabled: returns True if share groups are enabled (`share.version`).
        end_offsets: looks up the end offsets of partitions, for lags; None: no end offset is known.

    Raises:
        ConfigError: settings contradict each other, there is not exactly one assignor, or the assignor cannot be
            loaded.

    Attributes:
        config: the node's settings.
        enabled: whether share groups are served.
        assignor_name: the name in the setting `group.share.assignors`.
        assignor: computes the targets of all share groups.
        persister: the durable state of share partitions; set once the node has one.
        end_offsets: looks up the end offsets of partitions, for lags.
        on_left: called when a member has left its group, with the group id, the member id, and True if it was the last
            member. The function may only schedule work, because it is called during a decision.
    """

    __slots__ = (
        "_enabled",
        "assignor",
        "assignor_name",
        "config",
        "enabled",
        "end_offsets",
        "on_left",
        "persister",
    )

    def __init__(
        self,
        config: Config,
        *,
        settings: GroupSettings | None = None,
        enabled: Callable[[], bool] = lambda: True,
        end_offsets: LocalEndOffsets | None = None,
    ) -> None:
        check_settings(config, "share", BOUNDED)
        if len(config.group_share_assignors) != 1:
            raise ConfigError("group.share.assignors must name exactly one assignor")
        super().__init__(BrokerSettings(config) if settings is None else settings, SETTINGS, ShareSettings)
        self.config = config
        ((self.assignor_name, self.assignor),) = load_all(config.group_share_assignors, "share").items()
        self.persister: Persister | None = None
        self.end_offsets = LocalEndOffsets(lambda topic, partition: None) if end_offsets is None else end_offsets
        self.on_left: Callable[[str, str, bool], None] = lambda group_id, member_id, last: None
        self._enabled = enabled
        self.enabled = False
        self.feature_changed()

    def feature_changed(self) -> None:
        """Checks again whether share groups are enabled, after a feature level changed."""
        self.enabled = self._enabled()

    def setting(self, group_id: str, name: str) -> Any:
        """Returns the effective value of a setting of a group, such as `share.isolation.level`."""
        return self._settings.get(group_id, name)
