"""Settings of topics and groups (KIP-133, KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.errors import KafkaError
from kcore.node._async.calls import AsyncCalls
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, GROUP = 2, 32  # resource types
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
OWN_SOURCES = {TOPIC: 1, GROUP: 8}  # resource type -> the source of settings that were set for the resource itself


async def config_of(calls: AsyncCalls, resource_type: int, name: str, own: bool) -> dict[str, str | None]:
    """Returns the settings of a topic or a group; with `own`, only those that were set for it."""

    def read(response: Any) -> dict[str, str | None]:
        (row,) = response.results
        if row.error_code:
            raise KafkaError.of(row.error_code, row.error_message)
        source = OWN_SOURCES[resource_type]
        return {entry.name: entry.value for entry in row.configs if not own or entry.config_source == source}

    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    return await calls.call(DescribeConfigsRequest(resources=[resource]), read)


async def change_config(calls: AsyncCalls, resource_type: int, name: str, config: Mapping[str, Any]) -> None:
    """Changes settings of a topic or a group."""

    def read(response: Any) -> None:
        (row,) = response.responses
        if row.error_code:
            raise KafkaError.of(row.error_code, row.error_message)

    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=to_text(value))
        for key, value in config.items()
    ]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
    await calls.call(IncrementalAlterConfigsRequest(resources=[resource]), read)


def to_text(value: Any) -> str | None:
    """Returns a setting's value as Kafka writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
