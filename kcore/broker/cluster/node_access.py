"""Access to the requests that the nodes of a cluster send to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kcore.broker.apis.control import ControlApi
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

Request = TypeVar("Request")
Response = TypeVar("Response")


class NodeAccess(NamedTuple):
    """Decides which clients may send the requests of nodes.

    Without it, any client could make the controller move all partitions, as long as there is no authorizer.

    Attributes:
        listener: the listener of `inter.broker.listener.name`, the only one for these requests; "" allows all.
        authorizer: decides about CLUSTER_ACTION on the cluster; None allows all.
    """

    listener: str = ""
    authorizer: Authorizer | None = None

    def allowed(self, context: RequestContext) -> bool:
        """Returns True if the client may act as a node."""
        if self.listener and context.listener != self.listener:
            return False
        authorizer = self.authorizer
        return authorizer is None or authorizer.allowed(
            context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )


class NodeApi(ControlApi[Request, Response]):
    """Base of the controller's APIs for other nodes.

    Args:
        shard: the metadata shard.
        access: recognizes requests of other nodes.
    """

    __slots__ = ("access",)

    def __init__(self, shard: Shard[MetadataMachine], access: NodeAccess) -> None:
        super().__init__(shard, access.authorizer)
        self.access = access
