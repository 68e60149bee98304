"""Settings of topics, groups and brokers (KIP-133, KIP-339), and levels of loggers (KIP-412)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.errors import KafkaError
from kcore.node._async.calls import AsyncCalls
from kcore.node.arguments import check_mapping, check_text
from kcore.node.requests import error_about
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32  # resource types
KINDS = {TOPIC: "topic", BROKER: "broker", LOGGER: "broker", GROUP: "group"}
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
OWN_SOURCES = {TOPIC: (1,), BROKER: (2, 4), GROUP: (8,)}
"""Mapping from resource types to numbers of config sources.

These are the sources of settings that were set for the resource itself. Another source is, for example, a default.
"""


async def config_of(
    calls: AsyncCalls, resource_type: int, name: str, own: bool, broker: Broker | None = None
) -> dict[str, str | None]:
    """Returns the settings of a resource; with `own`, only settings that were set for this resource.

    Args:
        calls: the node's requests.
        resource_type: the number of the resource's type in Kafka's protocol.
        name: the name of the resource.
        own: True to leave out settings from other sources, such as defaults.
        broker: the broker that has the settings; None: any broker.
    """

    def read(response: Any) -> dict[str, str | None]:
        (row,) = response.results
        if row.error_code and not row.error_message:  # of an unknown topic
            raise error_about(row.error_code, f"{KINDS[resource_type]} {name!r}")
        if row.error_code:
            raise KafkaError.of(row.error_code, row.error_message)
        return {
            entry.name: entry.value
            for entry in row.configs
            if not own or entry.config_source in OWN_SOURCES[resource_type]
        }

    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    return await calls.call(DescribeConfigsRequest(resources=[resource]), read, broker=broker)


async def change_config(
    calls: AsyncCalls, resource_type: int, name: str, config: Mapping[str, Any], broker: Broker | None = None
) -> None:
    """Changes settings of a resource; a value of None restores the default.

    Args:
        calls: the node's requests.
        resource_type: the number of the resource's type in Kafka's protocol.
        name: the name of the resource.
        config: setting -> value.
        broker: the broker that has the settings; None: any broker.

    Raises:
        ConfigError: a name or a value is too long.
        TypeError: `config` is not a mapping of strings.
    """
    check_mapping("config", config)

    def read(response: Any) -> None:
        (row,) = response.responses
        if row.error_code:
            raise KafkaError.of(row.error_code, row.error_message)

    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=setting_text(key, value))
        for key, value in config.items()
    ]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
    await calls.call(IncrementalAlterConfigsRequest(resources=[resource]), read, broker=broker)


def setting_text(name: str, value: Any) -> str | None:
    """Returns a setting's value as Kafka writes it.

    Raises:
        ConfigError: the text is too long, or UTF-8 cannot encode it.
    """
    text = to_text(value)
    if text is not None:
        check_text(f"the value of {name}", text)
    return text


def to_text(value: Any) -> str | None:
    """Returns a setting's value as Kafka writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
