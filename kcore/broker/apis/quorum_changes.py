"""The base of the APIs that change the members of a cluster: this node is its only broker and voter."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView

Request = TypeVar("Request")
Response = TypeVar("Response")


class MembershipApi(Api[Request, Response], Generic[Request, Response]):
    """The base class of handlers that refuse each change with Kafka's error. Subclasses define `check`.

    Args:
        cluster: this node.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_authorizer", "cluster")

    def __init__(self, cluster: ClusterView, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer
        self.cluster = cluster

    @abstractmethod
    def check(self, request: Any) -> KafkaError:
        """Returns the reason of the refusal."""

    def check_cluster(self, cluster_id: str | None) -> None:
        """Checks the cluster id of a request.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID for another cluster.
        """
        if cluster_id is not None and cluster_id != self.cluster.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the request is for another cluster; the id of this cluster is {self.cluster.cluster_id}",
            )

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Refuses the change."""
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            refusal = self.check(request)
        except KafkaError as error:
            refusal = error
        return self.error(context, request, refusal.code, refusal.message)

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        """Makes a response with the error code and its text."""
        make: Any = self.response_type
        return make(error_code=code, error_message=message or code.message)
