"""The broker's own settings: those of its file and those set while it runs, and which of them is in force (KIP-226)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.broker.configs.values import InvalidValueError, read_value, show_value
from kcore.broker.metadata.image import ConfigType
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcore.broker.metadata.topics import Topics
    from kcore.config.node import Config

logger = logging.getLogger(__name__)

SOURCE_TOPIC = 1
SOURCE_DYNAMIC_BROKER = 2
SOURCE_DYNAMIC_DEFAULT_BROKER = 3
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5
SOURCE_CLIENT_METRICS = 7
SOURCE_GROUP = 8

CLUSTER_DEFAULT = ""
"""The name of the resource that holds the defaults of all brokers."""

ALIASES: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Settings that say the same thing in other units: the first that has a value counts."""


class SynonymValue(NamedTuple):
    """A place where a value could come from.

    Attributes:
        name: the setting.
        value: its value as text.
        source: Kafka's number of the place (the SOURCE constants).
    """

    name: str
    value: str | None
    source: int


def _aliases(name: str) -> tuple[str, ...]:
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    return next((group for group in ALIASES if name in group), (name,))


class BrokerConfig(MetadataListener):
    """Puts settings that are changed at run time in force, in the node's `Config`, and knows what they hide.

    Args:
        topics: where the changes are; this object listens to it, and must do so before those who read `config` then.
        config: the node's settings, as they were given at its start.
        node_id: this broker.
    """

    __slots__ = ("_changed", "_synonyms", "_topics", "config", "node_name", "static")

    def __init__(self, topics: Topics, config: Config, node_id: int) -> None:
        self._topics = topics
        self._changed: set[str] = set()
        self._synonyms: dict[str, tuple[SynonymValue, ...]] = {}  # until a setting of the broker changes
        self.config = config
        self.node_name = str(node_id)
        # name -> (value, source) of what the file or the command line says
        self.static: dict[str, tuple[Any, str]] = {
            entry.setting.name: (entry.value, entry.source) for entry in config.effective() if entry.source != "default"
        }
        topics.listen(self)

    def own(self) -> Mapping[str, str]:
        """What was set at run time for this broker."""
        return self._topics.settings_of(ConfigType.BROKER, self.node_name)

    def cluster_defaults(self) -> Mapping[str, str]:
        """What was set at run time for all brokers."""
        return self._topics.settings_of(ConfigType.BROKER, CLUSTER_DEFAULT)

    def synonyms(self, name: str) -> tuple[SynonymValue, ...]:
        """Where the value of a setting could come from, the one in force first; settings in other units count too.

        Nothing if only a setting in another unit has a value: it is no value of `name`.
        """
        found = self._synonyms.get(name)
        if found is None:
            found = self._synonyms[name] = self._find_synonyms(name)
        return found

    def _find_synonyms(self, name: str) -> tuple[SynonymValue, ...]:
        names = _aliases(name)
        found: list[SynonymValue] = []
        for source, layer in (
            (SOURCE_DYNAMIC_BROKER, self.own()),
            (SOURCE_DYNAMIC_DEFAULT_BROKER, self.cluster_defaults()),
        ):
            found += [SynonymValue(alias, layer[alias], source) for alias in names if alias in layer]
        for alias in names:
            if alias in self.static:
                found.append(SynonymValue(alias, show_value(self.static[alias][0]), SOURCE_STATIC_BROKER))
        for alias in names:
            setting = self.config.SETTINGS.get(alias)
            if setting is not None and setting.default is not None:
                found.append(SynonymValue(alias, show_value(setting.default), SOURCE_DEFAULT))
        while found and found[0].name != name:
            del found[0]
        return tuple(found)

    def fault(self, name: str, text: str) -> str | None:
        """What is wrong with setting `name` to `text` at run time; None if it may be done.

        A name that is no setting of the broker is kept and means nothing, as in Kafka.
        """
        setting = self.config.SETTINGS.get(name)
        if setting is None:
            return None
        if not setting.dynamic:
            return f"{name} cannot be changed while the broker runs"
        try:
            read_value(setting, text)
        except InvalidValueError as error:
            return str(error)
        return None

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Puts the broker's changed settings in force, and takes back those that are not set any more."""
        if resource_type != ConfigType.BROKER or name not in {CLUSTER_DEFAULT, self.node_name}:
            return
        self._synonyms.clear()
        wanted = {**self.cluster_defaults(), **self.own()}
        for setting_name in sorted(self._changed - wanted.keys()):
            if setting_name in self.static:
                self.config.set(setting_name, *self.static[setting_name])
            else:
                self.config.reset(setting_name)
            self._changed.discard(setting_name)
        for setting_name, text in wanted.items():
            setting = self.config.SETTINGS.get(setting_name)
            if setting is None:
                continue
            try:
                value = read_value(setting, text)
            except InvalidValueError as error:
                logger.warning("a setting from an earlier version is not in force: %s", error)
                continue
            self.config.set(setting_name, value, "dynamic")
            self._changed.add(setting_name)
