"""Changes of settings: Kafka's checks in Kafka's order, and the records of the change. Each resource is changed as a
whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.configs.broker_config import BrokerConfig, is_of_one_broker
from kcore.broker.configs.client_metrics_config import check_client_metrics
from kcore.broker.configs.group_config import GROUP_SETTINGS, read_group_settings
from kcore.broker.configs.topic_effective import read_topic_settings
from kcore.broker.configs.topic_schema import topic_setting
from kcore.broker.configs.values import MAX_VALUE_LENGTH, InvalidValueError, show_value, split_list
from kcore.broker.metadata.features import ELIGIBLE_REPLICAS, MIN_INSYNC_REPLICAS
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.names import name_fault
from kcore.broker.metadata.records import config_record
from kcore.config.kafka_settings import kafka_settings
from kcore.config.setting import Setting, SettingType
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.broker.metadata.image import MetadataImage
    from kcore.runtime.machine import Record


class ConfigOperation(IntEnum):
    """Operation on a setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """A requested change of one setting."""

    name: str
    operation: int
    value: str | None


class ConfigChanges:
    """The checks of changed settings, and the records of the changes.

    Args:
        broker: the broker's settings.
    """

    __slots__ = ("_broker",)

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker

    def incremental(
        self,
        image: MetadataImage,
        config_type: int,
        name: str,
        alterations: Sequence[Alteration],
        *,
        forwarded: bool,
    ) -> list[Record]:
        """Makes the records that change some settings of a resource and keep the others (KIP-339).

        The request must have passed `check`. If it is `forwarded`, the node that received it has checked the bounds of
        cluster-wide values, because they depend on the own values of that node.

        Raises:
            KafkaError: the change is refused as a whole.
        """
        own = image.settings_of(config_type, name)
        requested = dict(own)
        for alteration in alterations:
            value = self._altered(config_type, own.get(alteration.name), alteration)
            if value is None:
                requested.pop(alteration.name, None)
            else:
                requested[alteration.name] = value
        changed = {alteration.name: requested.get(alteration.name) for alteration in alterations}
        return self._change_records(image, config_type, name, own, requested, changed, forwarded)

    def whole(
        self,
        image: MetadataImage,
        config_type: int,
        name: str,
        settings: Sequence[Alteration],
        *,
        forwarded: bool,
    ) -> list[Record]:
        """Makes the records that set these settings of a resource and remove all others.

        The request must have passed `check`. If it is `forwarded`, the node that received it has checked the bounds of
        cluster-wide values, because they depend on the own values of that node.

        Raises:
            KafkaError: the change is refused as a whole.
        """
        own = image.settings_of(config_type, name)
        requested = {setting.name: setting.value for setting in settings if setting.value is not None}
        changed: dict[str, str | None] = dict(requested)
        changed.update({setting_name: None for setting_name in own if setting_name not in requested})
        return self._change_records(image, config_type, name, own, requested, changed, forwarded)

    def check(self, config_type: int, name: str, alterations: Sequence[Alteration]) -> None:
        """Checks a request without regard to the client and the resource's current settings.

        Raises:
            KafkaError: INVALID_REQUEST for a duplicate setting, a missing value, an unknown operation, a resource type
                without settings, an unknown broker, or loggers of another broker.
        """
        code = ErrorCode.INVALID_REQUEST
        duplicates = [setting for setting, count in Counter(a.name for a in alterations).items() if count > 1]
        if duplicates:
            raise KafkaError(code, f"settings that are in the request more than once: {', '.join(duplicates)}")
        missing = [a.name for a in alterations if a.value is None and a.operation != ConfigOperation.DELETE]
        if missing:
            raise KafkaError(code, f"settings without a value: {', '.join(missing)}")
        if config_type not in ConfigType.__members__.values():
            raise KafkaError(code, f"settings of resource type {config_type} cannot be changed")
        for alteration in alterations:
            if alteration.operation not in ConfigOperation.__members__.values():
                raise KafkaError(code, f"unknown operation {alteration.operation}")
        if config_type == ConfigType.BROKER_LOGGER or (
            config_type == ConfigType.BROKER and name and not self._broker.is_registered(name)
        ):
            check_broker_name(name, self._broker.node_name)

    def _altered(self, config_type: int, own: str | None, alteration: Alteration) -> str | None:
        """Returns the setting's new value; None if the setting is removed."""
        operation, value = alteration.operation, alteration.value
        if operation == ConfigOperation.DELETE:
            return None
        assert value is not None, "`check` refuses a missing value"
        if operation == ConfigOperation.SET:
            return value
        setting = self._setting(config_type, alteration.name)
        if setting is None or setting.type is not SettingType.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{alteration.name} is not a list; valid operations: SET, DELETE"
            )
        # The first change of a list starts from Kafka's default.
        parts = split_list(show_value(setting.default) or "" if own is None else own)
        changes = value.split(",")
        if operation == ConfigOperation.APPEND:
            present = set(parts)
            parts += [part for part in dict.fromkeys(changes) if part not in present]
        elif operation == ConfigOperation.SUBTRACT:
            parts = _subtract(parts, changes)
        return ",".join(parts)

    def _setting(self, config_type: int, name: str) -> Setting | None:
        if config_type == ConfigType.TOPIC:
            topic_row = topic_setting(name)
            return None if topic_row is None else topic_row.setting
        if config_type == ConfigType.GROUP:
            group_row = GROUP_SETTINGS.get(name)
            return None if group_row is None else group_row.setting
        if config_type == ConfigType.CLIENT_METRICS:
            return None  # as in Kafka, no setting of a subscription is a list that can be changed in parts
        # Kafka's type counts: kcore reads some texts of Kafka, such as the map of listeners' protocols, as lists.
        return kafka_settings().get(name) or self._broker.config.setting(name)

    # ---- the decision

    def _change_records(
        self,
        image: MetadataImage,
        config_type: int,
        name: str,
        own: Mapping[str, str],
        requested: Mapping[str, str],
        changed: Mapping[str, str | None],
        forwarded: bool,
    ) -> list[Record]:
        for setting, value in changed.items():
            if value is not None and len(value) > MAX_VALUE_LENGTH:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"the value of {setting} is longer than {MAX_VALUE_LENGTH} characters"
                )
        self._check_settings(image, config_type, name, requested)
        if (
            config_type == ConfigType.BROKER
            and MIN_INSYNC_REPLICAS in changed
            and image.features.get(ELIGIBLE_REPLICAS)
        ):
            if name:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{MIN_INSYNC_REPLICAS} can only be set for the whole cluster, not for one broker",
                )
            if changed[MIN_INSYNC_REPLICAS] is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"the cluster-wide {MIN_INSYNC_REPLICAS} cannot be deleted")
        if config_type == ConfigType.BROKER and (name or not forwarded):
            self._check_bounds(name, requested)
        return [
            config_record(config_type, name, setting, value)
            for setting, value in changed.items()
            # As in Kafka, an unchanged value of a broker's setting is written too, to reload a changed key store.
            if own.get(setting) != value or (config_type == ConfigType.BROKER and value is not None)
        ]

    def _check_settings(self, image: MetadataImage, config_type: int, name: str, requested: Mapping[str, str]) -> None:
        """Checks the complete settings of a resource."""
        try:
            if config_type == ConfigType.TOPIC:
                _check_topic_name(name)
                read_topic_settings(requested, self._broker.config)
                if image.by_name(name) is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif config_type == ConfigType.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a group needs a name")
                read_group_settings(requested, self._broker.config)
            elif config_type == ConfigType.CLIENT_METRICS:
                check_client_metrics(name, requested)
            else:
                for setting, value in requested.items():
                    fault = self._broker.fault(setting, value)
                    if fault is None and not name and is_of_one_broker(setting):
                        fault = f"{setting} is a setting of one broker, not of the cluster"
                    if fault is not None:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, fault)
                # The key stores of another broker are on its machine. If it cannot load one, that broker logs an error.
                fault = self._broker.keys_fault(requested) if name == self._broker.node_name else None
                if fault is not None:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, fault)
        except InvalidValueError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def _check_bounds(self, name: str, requested: Mapping[str, str]) -> None:
        """Checks the values that this broker would have, as Kafka's broker does before it forwards a request."""
        fault = self._broker.bounds_fault(name, requested)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, fault)


def check_broker_name(name: str, node_name: str) -> None:
    """Checks that a resource's name is this broker's id.

    Raises:
        KafkaError: INVALID_REQUEST if it is another broker's id or not a number.
    """
    try:
        node_id = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the name of a broker resource must be a broker id, found {name!r}"
        ) from None
    if str(node_id) != node_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request is for broker {name}, and this is broker {node_name}")


def _check_topic_name(name: str) -> None:
    if not name:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a topic resource needs a name: there are no default settings of all topics"
        )
    fault = name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def _subtract(parts: list[str], removed: list[str]) -> list[str]:
    """Returns `parts` without the elements of `removed`. Each element of `removed` removes one occurrence."""
    left = Counter(removed)
    remaining = []
    for part in parts:
        if left[part]:
            left[part] -= 1
        else:
            remaining.append(part)
    return remaining
