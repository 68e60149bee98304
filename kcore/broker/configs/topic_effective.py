"""What is in force for each topic: its own setting, else the broker's, else Kafka's default."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kcore.broker.configs.topic_schema import TOPIC_SETTINGS, TopicSetting
from kcore.broker.configs.values import InvalidValueError, read_value
from kcore.broker.metadata.image import ConfigType
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics
    from kcore.config.node import Config
    from kcore.runtime.topics import TopicInfo


logger = logging.getLogger(__name__)


def broker_value(row: TopicSetting, config: Config) -> Any:
    """What a topic has that was told nothing: the first of the broker's settings with a value, else the default."""
    for synonym in row.synonyms:
        if synonym.name in config.SETTINGS:
            value = config.get(synonym.name)
            if value is not None:
                return value if synonym.factor == 1 else -1 if value < 0 else value * synonym.factor
    return row.setting.default


def read_topic_settings(own: Mapping[str, str], config: Config) -> dict[str, Any]:
    """Reads and checks all settings of a topic.

    Args:
        own: what is to be set for the topic, name -> text.
        config: the broker's settings, which count where the topic has none.

    Raises:
        InvalidValueError: a setting is unknown, a value unreadable or out of bounds, or two do not go together.
    """
    values: dict[str, Any] = {}
    for name, text in own.items():
        row = TOPIC_SETTINGS.get(name)
        if row is None:
            raise InvalidValueError(f"a topic has no setting {name!r}")
        values[name] = read_value(row.setting, text)
    least, most = (
        values[name] if name in values else broker_value(TOPIC_SETTINGS[name], config)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        raise InvalidValueError(f"min.compaction.lag.ms={least} is above max.compaction.lag.ms={most}")
    return values


class TopicConfigs(MetadataListener):
    """Each topic's settings, typed.

    Args:
        topics: where the settings are; this object listens to it, and must do so before those who ask it then.
        config: the broker's settings.
    """

    __slots__ = ("_cache", "_config", "_defaults", "_topics")

    def __init__(self, topics: Topics, config: Config) -> None:
        self._topics = topics
        self._config = config
        self._cache: dict[str, dict[str, Any]] = {}
        self._defaults: dict[str, Any] | None = None
        topics.listen(self)

    def effective(self, topic: str) -> Mapping[str, Any]:
        """Every setting of a topic, name -> value in force (bool, int, float, str, tuple of str). Do not change it."""
        found = self._cache.get(topic)
        if found is not None:
            return found
        defaults = self.defaults()
        own = self._topics.settings_of(ConfigType.TOPIC, topic)
        if not own:
            return defaults
        merged = self._cache[topic] = dict(defaults)
        for name, text in own.items():
            row = TOPIC_SETTINGS.get(name)
            if row is None:
                continue  # set by a version that knew more
            try:
                merged[name] = read_value(row.setting, text)
            except InvalidValueError as error:
                logger.warning("a setting of topic %s from an earlier version is not in force: %s", topic, error)
        return merged

    def defaults(self) -> Mapping[str, Any]:
        """What a topic has that was told nothing."""
        if self._defaults is None:
            self._defaults = {name: broker_value(row, self._config) for name, row in TOPIC_SETTINGS.items()}
        return self._defaults

    def on_topic_created(self, topic: TopicInfo) -> None:
        """A new topic may have the name of an old one."""
        self._cache.pop(topic.name, None)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Forgets the topic."""
        self._cache.pop(topic.name, None)

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Forgets what was read before; after a change of the broker's everything."""
        if resource_type == ConfigType.TOPIC:
            self._cache.pop(name, None)
        elif resource_type == ConfigType.BROKER:
            self._cache.clear()
            self._defaults = None
