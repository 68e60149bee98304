"""DescribeCluster (key 60, versions 0-2): the nodes (KIP-700), their type (KIP-919), and whether they are fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import cluster_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView

BROKERS, CONTROLLERS = 1, 2


class DescribeClusterApi(Api[DescribeClusterRequest, DescribeClusterResponse]):
    """Handler of DescribeCluster requests. It lists the nodes.

    Args:
        cluster: the cluster's nodes.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_authorizer", "_cluster")

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER
    request_type: ClassVar[type] = DescribeClusterRequest
    response_type: ClassVar[type] = DescribeClusterResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def __init__(self, cluster: ClusterView, authorizer: Authorizer | None = None) -> None:
        self._cluster = cluster
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """Lists the nodes with their addresses for the client's listener. No listed node is fenced."""
        if request.endpoint_type == CONTROLLERS:
            return self.error(context, request, ErrorCode.MISMATCHED_ENDPOINT_TYPE)
        if request.endpoint_type != BROKERS:
            return self.error(context, request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
        response = DescribeClusterResponse(
            cluster_id=self._cluster.cluster_id,
            controller_id=self._cluster.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
                for b in self._cluster.brokers(context.listener)
            ],
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(self._authorizer, context)
        return response

    def error(
        self, context: RequestContext, request: DescribeClusterRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeClusterResponse:
        """Makes a response with the error code, its text and no nodes."""
        return DescribeClusterResponse(error_code=code, error_message=message or code.message)
