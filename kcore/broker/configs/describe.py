"""Description of settings: value, source, synonyms, type and documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kcore.broker.configs.broker_config import (
    SOURCE_BROKER_LOGGER,
    SOURCE_CLIENT_METRICS,
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_DEFAULT_BROKER,
    SOURCE_GROUP,
    SOURCE_TOPIC,
    BrokerConfig,
    SynonymValue,
)
from kcore.broker.configs.client_metrics_config import CLIENT_METRICS_SETTINGS
from kcore.broker.configs.described_order import GROUP_ORDER, TOPIC_ORDER, in_order
from kcore.broker.configs.group_config import GROUP_SETTINGS
from kcore.broker.configs.topic_schema import INTERNAL_TOPIC_SETTINGS, TOPIC_SETTINGS
from kcore.broker.configs.values import InvalidValueError, read_value, show_value
from kcore.broker.metadata.image import ConfigType
from kcore.config.kafka_settings import described_order
from kcore.config.setting import Setting, SettingType
from kcore.protocol.messages.create_topics import CreatableTopicConfigs
from kcore.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

if TYPE_CHECKING:
    from kcore.broker.configs.topic_effective import TopicConfigs
    from kcore.broker.metadata.image import MetadataImage

DESCRIBED_TOPIC_SETTINGS = in_order(TOPIC_SETTINGS, TOPIC_ORDER)
DESCRIBED_GROUP_SETTINGS = in_order(GROUP_SETTINGS, GROUP_ORDER)

UNKNOWN_TYPE = 0
"""The type in a response for a logger, and for a setting that kcore does not have."""


class SettingsView:
    """The settings of topics, groups, brokers and metrics subscriptions, as DescribeConfigs shows them.

    Args:
        broker: the broker's settings and their sources.
        topics: the topics' effective settings.
    """

    __slots__ = ("_broker", "_topics")

    def __init__(self, broker: BrokerConfig, topics: TopicConfigs) -> None:
        self._broker = broker
        self._topics = topics

    def new_topic(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Describes all settings of a topic that is being created, sorted by name.

        The values in `own` are shown as the client requested them.
        """
        described = []
        for name in TOPIC_SETTINGS:
            if name in own:
                value: str | None = own[name]
                source = SOURCE_TOPIC
            else:
                value = show_value(self._topics.defaults()[name])
                source = self._source(self._synonyms_of_topic_setting(name))
                if source == SOURCE_DEFAULT:
                    source = self._converted_source(name)
            described.append(CreatableTopicConfigs(name=name, value=value, config_source=source))
        internal = [
            CreatableTopicConfigs(name=name, value=own[name], config_source=SOURCE_TOPIC)
            for name in INTERNAL_TOPIC_SETTINGS
            if name in own
        ]
        return sorted(described + internal, key=lambda config: config.name) if internal else described

    def topic(self, image: MetadataImage, name: str, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
        """Describes the settings of an existing topic."""
        own = image.settings_of(ConfigType.TOPIC, name)
        result = []
        for setting_name, row in DESCRIBED_TOPIC_SETTINGS.items():
            if not options.wants(setting_name):
                continue
            described = None if setting_name in own else options.topic_defaults.get(setting_name)
            if described is None:
                synonyms = self._synonyms_of_topic_setting(setting_name)
                default = self._topics.defaults()[setting_name]
                described = _own_or(options, row.setting, own, SOURCE_TOPIC, default, synonyms)
                if setting_name not in own:
                    options.topic_defaults[setting_name] = described
            result.append(described)
        result += [
            _own_or(options, row.setting, own, SOURCE_TOPIC, None, ())
            for setting_name, row in INTERNAL_TOPIC_SETTINGS.items()
            if setting_name in own and options.wants(setting_name)
        ]
        return result

    def group(self, image: MetadataImage, name: str, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
        """Describes the settings of a group, existing or not."""
        own = image.settings_of(ConfigType.GROUP, name)
        config = self._broker.config
        result = []
        for setting_name, row in DESCRIBED_GROUP_SETTINGS.items():
            if not options.wants(setting_name):
                continue
            if row.broker is None:
                default = row.setting.default
                synonyms: tuple[SynonymValue, ...] = (SynonymValue(setting_name, show_value(default), SOURCE_DEFAULT),)
            else:
                default = config.get(row.broker)
                synonyms = self._broker.synonyms(row.broker)
            result.append(_own_or(options, row.setting, own, SOURCE_GROUP, default, synonyms))
        return result

    def client_metrics(
        self, image: MetadataImage, name: str, options: DescribeOptions
    ) -> list[DescribeConfigsResourceResult]:
        """Describes the settings of a metrics subscription, existing or not."""
        own = image.settings_of(ConfigType.CLIENT_METRICS, name)
        return [
            _own_or(options, setting, own, SOURCE_CLIENT_METRICS, setting.default, ())
            for setting in CLIENT_METRICS_SETTINGS.values()
            if options.wants(setting.name)
        ]

    def broker(self, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
        """Describes all settings of this broker, including unknown ones that clients have set.

        As in Kafka, unknown settings come first. Kafka's settings follow, and then the settings that only kcore has.
        """
        config, order = self._broker.config, described_order()
        given = [entry.setting.name for entry in config.effective()]
        given += [*self._broker.cluster_defaults(), *self._broker.own()]
        others = [name for name in dict.fromkeys(given) if name not in order and name not in config.SETTINGS]
        own = [name for name in config.SETTINGS if name not in order]
        names = [*others, *sorted(order, key=order.__getitem__), *own]
        return [
            self._broker_setting(options, name, self._broker.synonyms(name)) for name in names if options.wants(name)
        ]

    def cluster_defaults(self, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
        """Describes the settings that were changed at run time for all brokers."""
        return [
            self._broker_setting(
                options,
                name,
                tuple(s for s in self._broker.synonyms(name) if s.source == SOURCE_DYNAMIC_DEFAULT_BROKER),
                default_value=text,
            )
            for name, text in self._broker.cluster_defaults().items()
            if options.wants(name)
        ]

    # ---- parts

    def _broker_setting(
        self, options: DescribeOptions, name: str, synonyms: tuple[SynonymValue, ...], default_value: str | None = None
    ) -> DescribeConfigsResourceResult:
        setting, present = self._broker.described(name)
        if setting is None or setting.type is SettingType.PASSWORD:
            value, synonyms = None, tuple(synonym._replace(value=None) for synonym in synonyms)
        else:
            value = show_value(present) if default_value is None else default_value
        return options.result(
            name,
            value,
            self._source(synonyms),
            synonyms,
            setting,
            read_only=setting is None or not setting.dynamic,
        )

    def _synonyms_of_topic_setting(self, name: str) -> tuple[SynonymValue, ...]:
        """Returns the possible sources of the value of the broker's setting from which a topic's setting takes its
        default.
        """
        row = TOPIC_SETTINGS[name]
        return self._broker.synonyms(row.synonyms[0].name) if row.synonyms else ()

    def _converted_source(self, name: str) -> int:
        """Returns the source of a default that comes from a setting in another unit (log.retention.hours)."""
        for synonym in TOPIC_SETTINGS[name].synonyms:
            values = self._broker.synonyms(synonym.name)
            if values and values[0].source != SOURCE_DEFAULT:
                return values[0].source
        return SOURCE_DEFAULT

    @staticmethod
    def _source(synonyms: tuple[SynonymValue, ...]) -> int:
        return synonyms[0].source if synonyms else SOURCE_DEFAULT


class DescribeOptions:
    """The requested settings and level of detail.

    Args:
        keys: the requested names; None or empty: all.
        synonyms: True to include synonyms.
        documentation: True to include documentation.

    Attributes:
        topic_defaults: descriptions of settings that a topic does not set, shared by all topics of one decision.
    """

    __slots__ = ("_documentation", "_keys", "_synonyms", "topic_defaults")

    def __init__(self, keys: Iterable[str] | None, synonyms: bool, documentation: bool) -> None:
        self._keys = frozenset(keys or ())
        self._synonyms = synonyms
        self._documentation = documentation
        self.topic_defaults: dict[str, DescribeConfigsResourceResult] = {}

    def wants(self, name: str) -> bool:
        """Tests if a setting is requested."""
        return not self._keys or name in self._keys

    def logger(self, name: str, level: str) -> DescribeConfigsResourceResult:
        """Makes the description of a logger."""
        return DescribeConfigsResourceResult(
            name=name, value=level, config_source=SOURCE_BROKER_LOGGER, config_type=UNKNOWN_TYPE, documentation=None
        )

    def result(
        self,
        name: str,
        value: str | None,
        source: int,
        synonyms: Iterable[SynonymValue],
        setting: Setting | None,
        read_only: bool = False,
    ) -> DescribeConfigsResourceResult:
        """Makes the description of one setting."""
        return DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=read_only,
            config_source=source,
            is_sensitive=setting is None or setting.type is SettingType.PASSWORD,
            synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms]
            if self._synonyms
            else [],
            config_type=UNKNOWN_TYPE if setting is None else setting.type.value,
            documentation=(setting.doc or None) if self._documentation and setting is not None else None,
        )


def _own_or(
    options: DescribeOptions,
    setting: Setting,
    own: Mapping[str, str],
    own_source: int,
    default: Any,
    synonyms: tuple[SynonymValue, ...],
) -> DescribeConfigsResourceResult:
    """Describes a setting with the resource's own value if it has one, else with `default` and its `synonyms`."""
    value = show_value(default)
    if setting.name in own:
        value = _normalized(setting, own[setting.name])
        synonyms = (SynonymValue(setting.name, value, own_source), *synonyms)
    return options.result(setting.name, value, synonyms[0].source if synonyms else SOURCE_DEFAULT, synonyms, setting)


def _normalized(setting: Setting, text: str) -> str | None:
    """Formats a stored value in its normal form: without blanks, and 0.50 as 0.5."""
    try:
        return show_value(read_value(setting, text))
    except InvalidValueError:
        return text
