"""Effective settings of each topic: the topic's own value, else the broker's, else Kafka's default."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kcore.broker.configs.topic_schema import TOPIC_SETTINGS, TopicSetting, topic_setting
from kcore.broker.configs.values import InvalidValueError, read_value
from kcore.broker.metadata.image import ConfigType
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics
    from kcore.config.node import Config
    from kcore.runtime.topics import TopicInfo


logger = logging.getLogger(__name__)


RETENTION_MS = "log.retention.ms"


def broker_value(row: TopicSetting, config: Config) -> Any:
    """Returns the value for topics without a setting of their own.

    It is the value of the first synonym that the broker's settings have, else the default.
    """
    for synonym in row.synonyms:
        value = config.get(synonym.name)
        if value is not None:
            if synonym.name == RETENTION_MS and value < 0:
                return -1  # as in Kafka, any negative value is unlimited
            return value if synonym.factor == 1 else -1 if value < 0 else value * synonym.factor
    return row.setting.default


def read_topic_settings(own: Mapping[str, str], config: Config) -> dict[str, Any]:
    """Parses and checks all settings of a topic.

    Args:
        own: the topic's own settings, name -> text.
        config: the broker's settings, the fallback for settings that the topic does not have.

    Raises:
        InvalidValueError: a setting is unknown, a value is invalid or out of bounds, or two values contradict.
    """
    values: dict[str, Any] = {}
    for name, text in own.items():
        row = topic_setting(name)
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
    """The typed settings of each topic.

    Args:
        topics: the metadata with the settings. The constructor adds this object as a listener of the metadata. Create
            it before other listeners that read settings.
        config: the broker's settings.
    """

    __slots__ = ("_broker_changes", "_cache", "_config", "_defaults", "_topics")

    def __init__(self, topics: Topics, config: Config) -> None:
        self._topics = topics
        self._config = config
        self._broker_changes = 0
        # topic -> (number of the broker's changes before, settings). Stale settings are replaced at their next use: to
        # free those of all topics at once would take long.
        self._cache: dict[str, tuple[int, dict[str, Any]]] = {}
        self._defaults: dict[str, Any] | None = None
        topics.listen(self)

    def effective(self, topic: str) -> Mapping[str, Any]:
        """Returns every setting of a topic, name -> value (bool, int, float, str, tuple of str); do not change it."""
        cached = self._cache.get(topic)
        if cached is not None and cached[0] == self._broker_changes:
            return cached[1]
        defaults = self.defaults()
        own = self._topics.settings_of(ConfigType.TOPIC, topic)
        if not own:
            return defaults
        merged = dict(defaults)
        for name, text in own.items():
            row = topic_setting(name)
            if row is None:
                continue  # a later version set it
            try:
                merged[name] = read_value(row.setting, text)
            except InvalidValueError as error:
                logger.warning(
                    "topic %s: ignoring a setting that is not valid in this version: %s; alter or delete the setting "
                    "with kafka-configs",
                    topic,
                    error,
                )
        self._cache[topic] = self._broker_changes, merged
        return merged

    def defaults(self) -> Mapping[str, Any]:
        """Returns the settings of topics without settings of their own, name -> value."""
        if self._defaults is None:
            self._defaults = {name: broker_value(row, self._config) for name, row in TOPIC_SETTINGS.items()}
        return self._defaults

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Drops the cached settings of an earlier topic of the same name."""
        self._cache.pop(topic.name, None)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Drops the topic's cached settings."""
        self._cache.pop(topic.name, None)

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Drops the topic's cached settings.

        If the broker's settings changed, drops the cached settings of all topics.
        """
        if resource_type == ConfigType.TOPIC:
            self._cache.pop(name, None)
        elif resource_type == ConfigType.BROKER:
            self._broker_changes += 1
            self._defaults = None
