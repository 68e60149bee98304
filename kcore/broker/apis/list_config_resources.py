"""ListConfigResources (key 74, versions 0-1): the resources that have settings (KIP-714, KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import SlicedReadApi, client_code
from kcore.broker.metadata.image import ConfigType
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

STEP_NAMES = 1_000
"""Number of names that a step examines. Each takes about a microsecond."""

_LISTED_BY_SETTINGS = frozenset({int(ConfigType.CLIENT_METRICS), int(ConfigType.GROUP)})
"""Numbers of the resource types for which a response omits resources without settings."""


class ListConfigResourcesApi(SlicedReadApi[ListConfigResourcesRequest, ListConfigResourcesResponse]):
    """Handler of ListConfigResources requests. It lists topics, brokers, their loggers, and the groups and metrics
    subscriptions that have settings.

    Args:
        shard: the metadata shard.
        cluster: the cluster's nodes.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_cluster",)

    key: ClassVar[ApiKey] = ApiKey.LIST_CONFIG_RESOURCES
    request_type: ClassVar[type] = ListConfigResourcesRequest
    response_type: ClassVar[type] = ListConfigResourcesResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)

    def __init__(
        self, shard: Shard[MetadataMachine], cluster: ClusterView, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shard, authorizer)
        self._cluster = cluster

    def steps(self, machine: MetadataMachine, context: RequestContext, request: ListConfigResourcesRequest) -> Work:
        """Lists the resources of the requested types; version 0 lists only metrics subscriptions."""
        if not self.allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if context.api_version == 0:
            types = {ConfigType.CLIENT_METRICS}
        else:
            requested = set(request.resource_types) or set(ConfigType)
            if not requested <= set(ConfigType):
                return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
            types = {ConfigType(number) for number in requested}
        image, node_names = machine.image, [str(node_id) for node_id in self._cluster.nodes]
        names: dict[int, list[str]] = {
            ConfigType.TOPIC: list(image.names) if ConfigType.TOPIC in types else [],
            ConfigType.BROKER: node_names,
            ConfigType.BROKER_LOGGER: node_names,
            ConfigType.CLIENT_METRICS: [],
            ConfigType.GROUP: [],
        }
        owners = list(image.settings)
        for first in range(0, len(owners), STEP_NAMES):
            some = owners[first : first + STEP_NAMES]
            for kind, name in some:
                if kind in _LISTED_BY_SETTINGS:
                    names[kind].append(name)
            yield len(some)
        resources: list[ConfigResource] = []
        for listed in sorted(types):
            for first in range(0, len(names[listed]), STEP_NAMES):
                part = names[listed][first : first + STEP_NAMES]
                resources += [ConfigResource(resource_name=name, resource_type=listed) for name in part]
                yield len(part)
        return ListConfigResourcesResponse(config_resources=resources)

    def error(
        self, context: RequestContext, request: ListConfigResourcesRequest, code: ErrorCode, message: str | None = None
    ) -> ListConfigResourcesResponse:
        """Makes a response with the error code and without resources."""
        return ListConfigResourcesResponse(error_code=client_code(code))
