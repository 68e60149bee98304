"""Access to the requests that the nodes of a cluster send to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kcore.broker.apis.control import ControlApi
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.cluster.store import RegisteredNode
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

Request = TypeVar("Request")
Response = TypeVar("Response")


class NodeSecrets:
    """The secrets with which the live nodes have registered.

    Only nodes can read the store of the cluster, so a client cannot know them.

    Attributes:
        known: the secrets, none before the first poll of the cluster; None if a live node of an older version has no
            secret, so that every client may act as a node.
    """

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: frozenset[str] | None = frozenset()

    def update(self, nodes: Iterable[RegisteredNode]) -> None:
        """Adopts the registrations that a poll of the cluster has read."""
        live = {node.description.secret for node in nodes if not node.fenced}
        self.known = None if "" in live else frozenset(live)

    def proves_node(self, context: RequestContext) -> bool:
        """Returns True if the client has the secret of a live node."""
        return self.known is not None and context.node_secret in self.known


class NodeAccess(NamedTuple):
    """Decides which clients may send the requests of nodes.

    Without it, any client could make the controller move all partitions. In Kafka, these requests need CLUSTER_ACTION,
    and only the listeners of controllers serve them. Here clients may share a listener with nodes, so without an
    authorizer a node identifies itself by its secret.

    Attributes:
        listener: the listener of `inter.broker.listener.name`, the only one for these requests; "" allows all.
        authorizer: decides about CLUSTER_ACTION on the cluster; None: the secret decides.
        secrets: the secrets of the nodes.
    """

    listener: str = ""
    authorizer: Authorizer | None = None
    secrets: NodeSecrets = NodeSecrets()

    def allowed(self, context: RequestContext) -> bool:
        """Returns True if the client may act as a node."""
        if self.listener and context.listener != self.listener:
            return False
        authorizer = self.authorizer
        if authorizer is None:
            known = self.secrets.known
            return known is None or context.node_secret in known
        return authorizer.allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


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
