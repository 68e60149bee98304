"""The values of a node's settings, and the source of each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from kcore.config.jaas import OTHER_MECHANISMS, PLAIN_MODULE, login_module, other_jaas_fault
from kcore.config.security import (
    LISTENER_LIMITS,
    LISTENER_PREFIX,
    OF_OAUTHBEARER,
    PER_LISTENER,
    SecuritySettings,
    listener_names,
    listener_of,
)
from kcore.config.setting import Setting, SettingType, similar_name
from kcore.errors import ConfigError

SAME_AS = {
    "broker.id": "node.id",
    "log.dirs": "kcore.data.dir",
    "log.dir": "kcore.data.dir",
    "sasl.jaas.config": "plain.sasl.jaas.config",
}
"""Mapping from the names of Kafka's settings to kcore's names of the same settings, where the names differ."""


PROTOCOL_MAP = "listener.security.protocol.map"


class Effective(NamedTuple):
    """A setting with its current value and the value's source ("default", "file server.properties:3", "-c", …)."""

    setting: Setting
    value: Any
    source: str


class AbsentListener(NamedTuple):
    """A setting of a listener that `listeners` lacks.

    Attributes:
        setting: the setting's name, or `listener.security.protocol.map=ENTRY`.
        listener: the listener's name, in lower case.
        source: the source of the setting's value.
    """

    setting: str
    listener: str
    source: str


class ConfigValues(SecuritySettings):
    """The values of the settings that the subclass `kcore.config.node.Config` declares."""

    listeners: tuple[str, ...]

    SETTINGS: ClassVar[dict[str, Setting]]

    def __init__(self, values: Mapping[str, Any] | None = None, sources: Mapping[str, str] | None = None) -> None:
        self._sources: dict[str, str] = {}
        self._of_listeners: dict[str, Effective] = {}  # listener.name.NAME.SETTING
        self._foreign: dict[str, Effective] = {}  # settings that Kafka has and kcore does not use
        for name, entry in self.SETTINGS.items():
            setattr(self, _attribute(name), entry.default)
        for name, value in (values or {}).items():
            self.set(name, value, (sources or {}).get(name, "given"))

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None, **by_attribute: Any) -> Self:
        """Creates a configuration from values by Kafka's names and by attribute names.

        Raises:
            ConfigError: a name is unknown or a value is not valid.
        """
        merged = dict(values or {})
        merged.update({attribute.replace("_", "."): value for attribute, value in by_attribute.items()})
        return cls(merged)

    def set(self, name: str, value: Any, source: str) -> None:
        """Changes a setting. The change takes effect at once, because other code reads the attribute at each use.

        Raises:
            ConfigError: the name is unknown or the value is not valid.
        """
        entry = self.SETTINGS.get(name)
        if entry is None and name.startswith(LISTENER_PREFIX):
            own = self.listener_setting(name)
            self._of_listeners[name] = Effective(own, own.parse(value), source)
            return
        if entry is None:
            self._set_foreign(name, value, source)
            return
        setattr(self, _attribute(name), entry.parse(value))
        self._sources[name] = source

    def _set_foreign(self, name: str, value: Any, source: str) -> None:
        """Stores one of Kafka's settings that kcore's own table of settings lacks.

        If kcore has an equivalent setting (`SAME_AS`) that was not set directly, this method sets it, too.
        """
        from kcore.config.kafka_settings import UNSUPPORTED, single_value  # noqa: PLC0415  # most nodes need none

        entry = self.setting(name)
        if entry is None:
            raise ConfigError(f"unknown setting {name!r}{similar_name(name, self.SETTINGS)}")
        parsed = entry.parse(value)
        if name in UNSUPPORTED and parsed != entry.default and parsed not in {"", ()}:
            raise ConfigError(f"{name}={entry.format(parsed)} is not supported by kcore: {UNSUPPORTED[name]}")
        if name == "process.roles" and "broker" not in parsed:
            raise ConfigError(
                f"process.roles={','.join(parsed)}: kcore is a broker; valid: broker or broker,controller"
            )
        target = SAME_AS.get(name)
        if name == "sasl.jaas.config" and parsed:
            if (fault := other_jaas_fault(parsed)) is not None:
                raise ConfigError(f"{name} {fault}")
            # The login module of another mechanism has options only for connections between brokers.
            target = target if login_module(parsed)[0] == PLAIN_MODULE else None
        if target is not None and self.source(target) in {"default", *(self.source(other) for other in SAME_AS)}:
            self.set(target, single_value(name, parsed), source)
        self._foreign[name] = Effective(entry, parsed, source)

    def setting(self, name: str) -> Setting | None:
        """Returns the declaration of a setting of kcore or of Kafka, or None."""
        entry = self.SETTINGS.get(name)
        if entry is None:
            from kcore.config.kafka_settings import kafka_settings  # noqa: PLC0415  # most nodes need none

            entry = kafka_settings().get(name)
        return entry

    def without_effect(self) -> list[str]:
        """Returns the names of the settings that were set, exist in Kafka and have no effect in kcore.

        The names of `of_absent_listeners` are not in the list, because these settings have no effect in Kafka, either.
        """
        from kcore.config.kafka_settings import KEPT_FOR_TOOLS, NO_WARNING  # noqa: PLC0415  # for servers only

        unused = {name for name in self._foreign if name not in SAME_AS and name not in NO_WARNING}
        unused.update(KEPT_FOR_TOOLS.intersection(self._sources))
        controllers = self._controller_names()
        unused.update(name for name in self._of_listeners if listener_of(name) in controllers)
        # Login modules of mechanisms other than PLAIN; brokers of Kafka use them to connect to each other.
        absent = {setting_name for setting_name, _, _ in self.of_absent_listeners()}
        unused.update(name for name in self._of_listeners.keys() - absent if OTHER_MECHANISMS.fullmatch(name))
        jaas = self._foreign.get("sasl.jaas.config")
        if jaas is not None and jaas.value and login_module(jaas.value)[0] != PLAIN_MODULE:
            unused.add(jaas.setting.name)
        return sorted(unused)

    def of_absent_listeners(self) -> list[AbsentListener]:
        """Returns the settings that have no effect because `listeners` lacks their listener.

        The result has no settings of listeners of controllers. It has no entries of `listener.security.protocol.map`
        for the four names in the default of the map.
        """
        known = listener_names(self.listeners) | self._controller_names()
        absent = [
            AbsentListener(name, listener_of(name), own.source)
            for name, own in self._of_listeners.items()
            if listener_of(name) not in known
        ]
        source = self.source(PROTOCOL_MAP)
        known |= {_name_in(entry) for entry in self.SETTINGS[PROTOCOL_MAP].default}
        absent.extend(
            AbsentListener(f"{PROTOCOL_MAP}={entry}", _name_in(entry), source)
            for entry in self.get(PROTOCOL_MAP)
            if _name_in(entry) not in known
        )
        return absent

    def _controller_names(self) -> frozenset[str]:
        """Returns the names, in lower case, of the listeners of Kafka's controllers, which kcore does not open."""
        return frozenset(name.lower() for name in self.get("controller.listener.names") or ())

    def reset(self, name: str) -> None:
        """Resets a setting to its default."""
        if name not in self.SETTINGS:
            self._foreign.pop(name, None)
            self._of_listeners.pop(name, None)
            return
        setattr(self, _attribute(name), self.SETTINGS[name].default)
        self._sources.pop(name, None)

    def get(self, name: str) -> Any:
        """Returns the current value of a setting, by Kafka's name."""
        if name not in self.SETTINGS:
            own, entry = self._foreign.get(name), self.setting(name)
            return own.value if own is not None else None if entry is None else entry.default
        return getattr(self, _attribute(name))

    def source(self, name: str) -> str:
        """Returns the source of a setting's current value; "default" if it was not set."""
        if name in self._foreign:
            return self._foreign[name].source
        return self._sources.get(name, "default")

    def effective(self) -> Iterator[Effective]:
        """Yields every setting with its value and source, in the table's order."""
        for name, entry in self.SETTINGS.items():
            yield Effective(entry, self.get(name), self.source(name))
        yield from self._of_listeners.values()
        yield from self._foreign.values()

    def of_listener(self, name: str, default: Any) -> Any:
        """Returns a listener's own value of a setting.

        Args:
            name: the setting's name with the listener's prefix, in lower case.
            default: the result if no value was set for this listener.
        """
        own = self._of_listeners.get(name)
        return default if own is None else own.value

    def for_listener(self, listener: str, changed: Mapping[str, Any] | None = None) -> SecuritySettings:
        """Returns the security settings of one listener: values set for it, or else the values for all listeners.

        Args:
            listener: the listener's name.
            changed: values that replace the present values of listeners. A key is a setting's name with the listener's
                prefix, in lower case. None removes the value that was set for the listener.
        """
        settings = SecuritySettings()
        own: dict[str, Any] = {name: entry.value for name, entry in self._of_listeners.items()}
        own.update(changed or {})
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for attribute in SecuritySettings.__annotations__:
            name = attribute.replace("_", ".")
            value = own.get(prefix + name)
            if value is None and name.startswith(OF_OAUTHBEARER):
                value = own.get(f"{prefix}oauthbearer.{name}")
            setattr(settings, attribute, self.get(name) if value is None else value)
        return settings

    def listener_setting(self, name: str) -> Setting:
        """Returns the declaration of a listener's setting, under its name with the listener's prefix.

        Raises:
            ConfigError: the setting cannot be set for a single listener, or the name has upper-case letters: Kafka's
                brokers read only the name in lower case.
        """
        if name != name.lower():
            raise ConfigError(f"{name}: the name of a listener setting must be in lower case: {name.lower()}")
        if OTHER_MECHANISMS.fullmatch(name.removeprefix(LISTENER_PREFIX)):
            return Setting(name, SettingType.PASSWORD, None, "It has no effect.", check=other_jaas_fault)
        for attribute in PER_LISTENER | LISTENER_LIMITS:
            setting_name = attribute.replace("_", ".")
            if name.endswith(f".{setting_name}") and len(name) > len(LISTENER_PREFIX + setting_name) + 1:
                return self.SETTINGS[setting_name]._replace(name=name)
        raise ConfigError(f"{name!r} cannot be set for a single listener")


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _name_in(entry: str) -> str:
    """Returns the listener's name, in lower case, in an entry `NAME:PROTOCOL` of `listener.security.protocol.map`."""
    return entry.partition(":")[0].strip().lower()
