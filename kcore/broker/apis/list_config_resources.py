"""ListConfigResources (key 74, versions 0-1): the resources that have settings (KIP-714, KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
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


class ListConfigResourcesApi(ControlApi[ListConfigResourcesRequest, ListConfigResourcesResponse]):
    """Lists topics, brokers, their loggers, and the groups and metrics subscriptions that have settings.

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

    def decide(self, machine: MetadataMachine, context: RequestContext, request: ListConfigResourcesRequest) -> Any:
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
        image = machine.image
        names: dict[ConfigType, list[str]] = {
            ConfigType.TOPIC: [topic.name for topic in image.all()],
            ConfigType.BROKER: [str(node_id) for node_id in self._cluster.nodes],
            ConfigType.BROKER_LOGGER: [str(node_id) for node_id in self._cluster.nodes],
            ConfigType.CLIENT_METRICS: [],
            ConfigType.GROUP: [],
        }
        for owner in image.settings:
            if owner.type in {ConfigType.CLIENT_METRICS, ConfigType.GROUP}:
                names[ConfigType(owner.type)].append(owner.name)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind) for kind in sorted(types) for name in names[kind]
            ]
        )

    def error(
        self, context: RequestContext, request: ListConfigResourcesRequest, code: ErrorCode, message: str | None = None
    ) -> ListConfigResourcesResponse:
        """Makes a response with the code and without resources."""
        return ListConfigResourcesResponse(error_code=client_code(code))
