"""DescribeConfigs (key 32, versions 1-4): settings of topics, brokers, groups and metrics subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
from kcore.broker.configs.alter import check_broker_name
from kcore.broker.configs.describe import DescribeOptions
from kcore.broker.configs.loggers import loggers
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.names import name_fault
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from kcore.broker.configs.broker_config import BrokerConfig
    from kcore.broker.configs.describe import SettingsView
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.protocol.messages.describe_configs import DescribeConfigsResource
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard


RESOURCE_COST_US = 150
"""The cost of describing all settings of a topic, in microseconds."""

_DESCRIBED_TYPES = frozenset(
    {ConfigType.TOPIC, ConfigType.BROKER, ConfigType.BROKER_LOGGER, ConfigType.CLIENT_METRICS, ConfigType.GROUP}
)


class DescribeConfigsApi(ControlApi[DescribeConfigsRequest, DescribeConfigsResponse]):
    """Handler of DescribeConfigs requests. It reads a duplicate resource once and repeats its result.

    Args:
        shard: the metadata shard.
        view: describes settings.
        broker: this broker's settings.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_broker", "_view")

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS
    request_type: ClassVar[type] = DescribeConfigsRequest
    response_type: ClassVar[type] = DescribeConfigsResponse
    versions: ClassVar[tuple[int, int]] = (1, 4)
    differs: ClassVar[str] = (
        "The loggers (resource type 8) are those of the package `kcore`; the loggers of a program that embeds kcore "
        "are not shown."
    )

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        view: SettingsView,
        broker: BrokerConfig,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shard, authorizer)
        self._view = view
        self._broker = broker

    def handle(self, context: RequestContext, request: DescribeConfigsRequest) -> Any:
        """Describes the resources, in parts if there are many; a duplicate resource is read once."""
        if _undescribed_type(request) is not None:
            return self.shard.run(self, context, request)
        keys = [_key(resource) for resource in request.resources]
        distinct = dict(zip(keys, request.resources, strict=True))

        def part(resources: list[Any]) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=resources,
                include_synonyms=request.include_synonyms,
                include_documentation=request.include_documentation,
            )

        def merge(parts: list[DescribeConfigsResponse]) -> DescribeConfigsResponse:
            results = [result for part in parts for result in part.results]
            if len(distinct) < len(keys):
                by_key = dict(zip(distinct, results, strict=True))
                results = [by_key[key] for key in keys]
            return DescribeConfigsResponse(results=results)

        # A few resources take one decision, which itself shares the results of duplicates.
        return self.in_parts(context, request, list(distinct.values()), part, merge, cost=RESOURCE_COST_US)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: DescribeConfigsRequest) -> Any:
        """Reads the settings of each resource. Refuses the whole request if a resource type has no settings."""
        undescribed = _undescribed_type(request)
        if undescribed is not None:
            text = f"resource type {undescribed} has no settings"
            return self.error(context, request, ErrorCode.INVALID_REQUEST, text)
        known: dict[tuple[int, str, frozenset[str]], DescribeConfigsResult] = {}
        options_by_keys: dict[frozenset[str], DescribeOptions] = {}
        results = []
        for resource in request.resources:
            key = _key(resource)
            result = known.get(key)
            if result is None:
                options = options_by_keys.get(key[2])
                if options is None:
                    options = options_by_keys[key[2]] = DescribeOptions(
                        key[2], request.include_synonyms, request.include_documentation
                    )
                result = known[key] = self._describe(machine, context, options, resource)
            results.append(result)
        return DescribeConfigsResponse(results=results)

    def _describe(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        options: DescribeOptions,
        resource: DescribeConfigsResource,
    ) -> DescribeConfigsResult:
        """Returns the settings of one resource, or an error if they cannot be read."""
        try:
            self._authorize(context, resource)
            configs = self._read(machine, resource, options)
        except KafkaError as error:
            # Kafka sends no text for an unknown topic.
            unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _failure(resource, error.code, "" if unknown else error.message)
        return DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
        )

    def _authorize(self, context: RequestContext, resource: DescribeConfigsResource) -> None:
        kind, name = resource.resource_type, resource.resource_name
        if kind == ConfigType.TOPIC:
            if not self.allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif kind == ConfigType.GROUP:
            if not self.allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, name):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        elif not self.allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def _read(
        self, machine: MetadataMachine, resource: DescribeConfigsResource, options: DescribeOptions
    ) -> list[DescribeConfigsResourceResult]:
        kind, name, invalid = resource.resource_type, resource.resource_name, ErrorCode.INVALID_REQUEST
        if kind == ConfigType.TOPIC:
            fault = name_fault(name)
            if fault is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
            if machine.image.by_name(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._view.topic(machine.image, name, options)
        if kind == ConfigType.BROKER:
            if not name:
                return self._view.cluster_defaults(options)
            check_broker_name(name, self._broker.node_name)
            return self._view.broker(options)
        if kind == ConfigType.GROUP:
            if not name:
                raise KafkaError(invalid, "a group needs a name")
            return self._view.group(machine.image, name, options)
        if kind == ConfigType.CLIENT_METRICS:
            if not name:
                raise KafkaError(invalid, "a metrics subscription needs a name")
            return self._view.client_metrics(machine.image, name, options)
        check_broker_name(name, self._broker.node_name)
        return [options.logger(logger, level) for logger, level in loggers().items() if options.wants(logger)]

    def error(
        self, context: RequestContext, request: DescribeConfigsRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeConfigsResponse:
        """Makes a response with the same error code for each resource."""
        return DescribeConfigsResponse(
            results=[_failure(resource, client_code(code), message) for resource in request.resources]
        )


def _undescribed_type(request: DescribeConfigsRequest) -> int | None:
    """Returns the first requested resource type that has no settings; None if every type has settings."""
    types = (resource.resource_type for resource in request.resources)
    return next((each for each in types if each not in _DESCRIBED_TYPES), None)


def _key(resource: DescribeConfigsResource) -> tuple[int, str, frozenset[str]]:
    """Returns a key for a requested resource. Two entries have equal keys if they request the same settings of the same
    resource. The order of the settings does not matter.
    """
    return resource.resource_type, resource.resource_name, frozenset(resource.configuration_keys or ())


def _failure(resource: DescribeConfigsResource, code: ErrorCode, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=code.message if message is None else message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
