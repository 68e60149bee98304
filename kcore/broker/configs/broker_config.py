"""The broker's settings: the values in its file, the values that were set at run time, and the effective values
(KIP-226).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.broker.configs.values import InvalidValueError, read_value, show_value
from kcore.broker.metadata.image import ConfigType
from kcore.config.bounds import beyond_bounds, within_bounds
from kcore.config.kafka_settings import THREAD_POOLS, per_broker_settings
from kcore.config.security import LISTENER_LIMITS, LISTENER_PREFIX, RELOADABLE
from kcore.errors import ConfigError
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcore.broker.metadata.topics import Topics
    from kcore.config.node import Config
    from kcore.config.setting import Setting

logger = logging.getLogger(__name__)

SOURCE_TOPIC = 1
SOURCE_DYNAMIC_BROKER = 2
SOURCE_DYNAMIC_DEFAULT_BROKER = 3
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5
SOURCE_BROKER_LOGGER = 6
SOURCE_CLIENT_METRICS = 7
SOURCE_GROUP = 8

CLUSTER_DEFAULT = ""
"""The resource name in requests that read or change the default settings of all brokers."""

ALIASES: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Groups of settings that differ only in their unit. In each group, the first setting with a value applies."""
BOUNDED: Final = frozenset(f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams"))
"""Names of dynamic settings whose lower and upper bounds are the values of static settings.

As in Kafka, a change is refused if the effective value would exceed a bound. A stored value may still exceed one, for
example after the bound was changed. The broker then uses the bound, because it could not start with the stored value.
"""


class ListenerKeys(Protocol):
    """Keys and certificates of a server's listeners."""

    def fault(self, changed: Mapping[str, str | None]) -> str | None:
        """Describes the reason why keys cannot be loaded after a change of settings; None if they can."""
        ...

    def reload(self) -> None:
        """Loads the keys and certificates of all listeners again."""
        ...


class SynonymValue(NamedTuple):
    """A possible source of a setting's value.

    Attributes:
        name: the setting's name.
        value: the setting's value as text.
        source: Kafka's number of the source (the SOURCE constants).
    """

    name: str
    value: str | None
    source: int


def is_reloadable(name: str) -> bool:
    """Returns True for the name of a listener's key or certificate, which may change at run time."""
    return _is_of_listener(name, RELOADABLE)


def is_of_one_broker(name: str) -> bool:
    """Returns True for the name of a setting that may change at run time for one broker, but not for the cluster."""
    return is_reloadable(name) or name in per_broker_settings()


def is_listener_limit(name: str) -> bool:
    """Returns True for the name of a listener's limit of connections, which may change at run time."""
    return _is_of_listener(name, LISTENER_LIMITS)


def _is_of_listener(name: str, attributes: frozenset[str]) -> bool:
    return (
        name.startswith(LISTENER_PREFIX)
        and name == name.lower()
        and any(name.endswith("." + attribute.replace("_", ".")) for attribute in attributes)
    )


def _aliases(name: str) -> tuple[str, ...]:
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    if is_listener_limit(name):
        return (name, name.removeprefix(LISTENER_PREFIX).partition(".")[2])
    return next((group for group in ALIASES if name in group), (name,))


class BrokerConfig(MetadataListener):
    """The broker's settings. Applies settings that are changed at run time to the node's `Config`, and finds the
    synonyms of a setting.

    Args:
        topics: the metadata with the changed settings. The constructor adds this object as a listener of the metadata.
            Create it before other listeners that read `config`.
        config: the node's settings, as given at its start.
        node_id: this broker's id.

    Attributes:
        config: the node's settings.
        keys: the listeners' keys and certificates, which a server sets; None without a server.
    """

    __slots__ = ("_changed", "_synonyms", "_topics", "config", "keys", "node_name", "static")

    def __init__(self, topics: Topics, config: Config, node_id: int) -> None:
        self._topics = topics
        self._changed: set[str] = set()
        self._synonyms: dict[str, tuple[SynonymValue, ...]] = {}  # cached until a setting of the broker changes
        self.config = config
        self.keys: ListenerKeys | None = None
        self.node_name = str(node_id)
        # name -> (value, source) from the file or the command line
        self.static: dict[str, tuple[Any, str]] = {
            entry.setting.name: (entry.value, entry.source) for entry in config.effective() if entry.source != "default"
        }
        topics.listen(self)

    def is_registered(self, name: str) -> bool:
        """Returns True if a resource's name is the id of a registered broker of the cluster.

        The controller changes the settings of any broker, because brokers forward such requests to it.
        """
        return name.isdecimal() and int(name) in self._topics.image.brokers

    def own(self) -> Mapping[str, str]:
        """Returns the settings that were changed at run time for this broker."""
        return self._topics.settings_of(ConfigType.BROKER, self.node_name)

    def cluster_defaults(self) -> Mapping[str, str]:
        """Returns the settings that were changed at run time for all brokers."""
        return self._topics.settings_of(ConfigType.BROKER, CLUSTER_DEFAULT)

    def static_value(self, name: str) -> Any:
        """Returns a setting's value from the file or the command line, else its default."""
        value, _ = self.static.get(name, (self.config.SETTINGS[name].default, "default"))
        return value

    def synonyms(self, name: str) -> tuple[SynonymValue, ...]:
        """Returns the possible sources of a setting's value, the source with the highest precedence first.

        The sources include other settings that differ from `name` only in their unit, such as `log.retention.hours`.
        But the first source is always of `name` itself: sources before it are omitted.
        """
        synonyms = self._synonyms.get(name)
        if synonyms is None:
            synonyms = self._synonyms[name] = self._find_synonyms(name)
        return synonyms

    def _find_synonyms(self, name: str) -> tuple[SynonymValue, ...]:
        names = _aliases(name)
        synonyms: list[SynonymValue] = []
        for source, layer in (
            (SOURCE_DYNAMIC_BROKER, self.own()),
            (SOURCE_DYNAMIC_DEFAULT_BROKER, self.cluster_defaults()),
        ):
            synonyms += [SynonymValue(alias, layer[alias], source) for alias in names if alias in layer]
        for alias in names:
            if alias in self.static:
                synonyms.append(SynonymValue(alias, show_value(self.static[alias][0]), SOURCE_STATIC_BROKER))
        for alias in names:
            setting = self.config.setting(alias)
            if setting is not None and setting.default is not None:
                synonyms.append(SynonymValue(alias, show_value(setting.default), SOURCE_DEFAULT))
        while synonyms and synonyms[0].name != name:
            del synonyms[0]
        return tuple(synonyms)

    def described(self, name: str) -> tuple[Setting | None, Any]:
        """Returns the declaration and value of a setting of the broker or a listener; (None, None) if it is unknown."""
        setting = self.config.setting(name)
        if setting is not None or not name.startswith(LISTENER_PREFIX):
            return setting, self.config.get(name)
        try:
            of_listener = self.config.listener_setting(name)
        except ConfigError:
            return None, None
        # As in Kafka, a listener's setting has no documentation and counts as not dynamic.
        return of_listener._replace(doc="", dynamic=False), self.config.of_listener(name, None)

    def fault(self, name: str, text: str) -> str | None:
        """Describes the reason to refuse a change of `name` to `text` at run time; None if the change is allowed.

        As in Kafka, an unknown setting, and any setting of a listener that does not exist, is stored without effect.
        An unknown setting of an existing listener is refused: otherwise a misspelled setting would leave the old
        certificate or user in use.
        """
        of_listener = name.lower().startswith(LISTENER_PREFIX)
        if of_listener and not name.startswith(LISTENER_PREFIX):
            return f"{name}: the name of a listener setting must begin with {LISTENER_PREFIX} in lower case"
        try:
            setting = self.config.listener_setting(name) if of_listener else self.config.setting(name)
        except ConfigError as error:
            return str(error)
        if setting is None:
            return None
        if of_listener and not (is_reloadable(name) or is_listener_limit(name)):
            return f"{name} cannot be changed while the broker runs"
        if not of_listener and not setting.dynamic:
            if name.replace(".", "_") in RELOADABLE:
                return f"{name} can be changed at run time for one listener only: {LISTENER_PREFIX}NAME.{name}"
            return f"{name} cannot be changed while the broker runs"
        try:
            value = read_value(setting, text)
        except InvalidValueError as error:
            return f"{name}: the value is not valid; valid: {setting.valid}" if of_listener else str(error)
        if not value and self._locks_out(name):
            return f"{name}: 0 is not valid at run time, because it would lock all clients out; valid: at least 1"
        if name in THREAD_POOLS:
            present = self.config.get(name)
            if not 1 <= value <= 2 * present or value < present // 2:
                return f"{name}={value}: one change may at most double or halve the present value, which is {present}"
        return None

    def _locks_out(self, name: str) -> bool:
        """Returns True if the value 0 of this setting would refuse every client, so that no client could change it
        back.
        """
        if name == "max.connections.per.ip":
            return not self.config.max_connections_per_ip_overrides  # as in Kafka
        return name == "max.connections" or (name.startswith(LISTENER_PREFIX) and is_listener_limit(name))

    def bounds_fault(self, resource_name: str, requested: Mapping[str, str]) -> str | None:
        """Describes an effective value that would exceed its bounds after a change; None if there is none.

        Args:
            resource_name: the id of a broker, whose values take precedence, or `CLUSTER_DEFAULT`.
            requested: all settings that this resource would have from the change on. They have valid values.
        """
        own = requested if resource_name else self.own()
        defaults = self.cluster_defaults() if resource_name else requested
        for name in sorted(BOUNDED):
            text, setting = own.get(name, defaults.get(name)), self.config.setting(name)
            if text is None or setting is None:
                continue
            fault = beyond_bounds(self.config, name, read_value(setting, text))
            if fault is not None:
                return fault
        return None

    def keys_fault(self, requested: Mapping[str, str]) -> str | None:
        """Describes the reason why listeners could not load their keys with these settings; None if they can.

        Args:
            requested: all settings that this broker would have from the change on.
        """
        if self.keys is None:
            return None
        changed: dict[str, Any] = {}
        for name in {*self._changed, *requested}:
            if is_reloadable(name):
                changed[name] = requested.get(name, self._static_or_none(name))
        return self.keys.fault(changed) if changed else None

    def stored_keys(self, listener: str) -> dict[str, Any]:
        """Returns the static values of those keys and certificates of a listener that were changed at run time.

        Returns:
            Setting -> its value in the properties file or on the command line; None if it has no value there.
        """
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        return {
            name: self._static_or_none(name)
            for name in sorted(self._changed)
            if name.startswith(prefix) and is_reloadable(name)
        }

    def _static_or_none(self, name: str) -> Any:
        return self.static.get(name, (None, ""))[0]

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Applies the broker's changed settings; if a setting was removed, restores its earlier value."""
        if resource_type != ConfigType.BROKER or name not in {CLUSTER_DEFAULT, self.node_name}:
            return
        self._synonyms.clear()
        overrides = {**self.cluster_defaults(), **self.own()}
        reloads = any(map(is_reloadable, {*self._changed, *overrides}))
        for setting_name in sorted(self._changed - overrides.keys()):
            if setting_name in self.static:
                self.config.set(setting_name, *self.static[setting_name])
            else:
                self.config.reset(setting_name)
            self._changed.discard(setting_name)
        for setting_name, text in overrides.items():
            if is_reloadable(setting_name) or is_listener_limit(setting_name):
                setting: Setting | None = self.config.listener_setting(setting_name)
            else:
                setting = self.config.setting(setting_name)
            if setting is None:
                if setting_name.startswith(LISTENER_PREFIX):
                    logger.warning(
                        "broker: the stored dynamic setting %s has no effect, because listener names in setting names "
                        "must be in lower case; delete the setting with kafka-configs",
                        setting_name,
                    )
                continue
            try:
                value = read_value(setting, text)
            except InvalidValueError as error:
                logger.warning(
                    "broker: ignoring a stored dynamic setting that is not valid in this version: %s; alter or delete "
                    "the setting with kafka-configs",
                    error,
                )
                continue
            fault = beyond_bounds(self.config, setting_name, value) if setting_name in BOUNDED else None
            if fault is not None:
                value = within_bounds(self.config, setting_name, value)
                logger.warning(
                    "broker: a stored dynamic setting is out of its bounds: %s; the broker uses %d; alter or delete "
                    "the setting with kafka-configs",
                    fault,
                    value,
                )
            self.config.set(setting_name, value, "dynamic")
            self._changed.add(setting_name)
        if reloads and self.keys is not None:
            self.keys.reload()
