"""Decides which clients may send the requests that only the nodes of a cluster send to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kcore.broker.apis.control import ControlApi
from kcore.process_logging import fields, limited_logger
from kcore.protocol.api_keys import api_name
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.cluster.store import RegisteredNode
    from kcore.protocol.api_keys import ApiKey
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

logger = limited_logger(__name__)

REFUSED: Final = "cluster: %s from %s at listener %s refused: "
WRONG_LISTENER: Final = REFUSED + "requests of nodes are only served at the listener of inter.broker.listener.name"
WRONG_SECRET: Final = REFUSED + (
    "the request lacks the secret of a live node. A node that has just registered repeats its request; if these lines "
    "continue, the sender is not a node of this cluster"
)
NO_PERMISSION: Final = REFUSED + (
    "principal %r is not allowed to act as a node; if a node has this principal, add the principal to super.users, or "
    "add an ACL that allows CLUSTER_ACTION on the cluster"
)

Request = TypeVar("Request")
Response = TypeVar("Response")


class NodeSecrets:
    """The secrets with which the live nodes have registered.

    Only nodes can read the store of the cluster, so a client cannot know them.

    Attributes:
        known: the secrets; empty before the first poll of the cluster. None if a live node of an older version has no
            secret: every client may then act as a node.
    """

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: frozenset[str] | None = frozenset()

    def update(self, nodes: Iterable[RegisteredNode]) -> None:
        """Replaces the secrets by those of the registrations that a poll of the cluster has read."""
        live = {node.description.secret for node in nodes if not node.fenced}
        self.known = None if "" in live else frozenset(live)

    def proves_node(self, context: RequestContext) -> bool:
        """Returns True if the client has the secret of a live node."""
        return self.known is not None and context.node_secret in self.known


class NodeAccess(NamedTuple):
    """The rule that decides which clients may send the requests of nodes.

    Without it, any client could make the controller move all partitions. In Kafka, these requests need CLUSTER_ACTION,
    and only the listeners of controllers serve them. Here clients may share a listener with nodes, so without an
    authorizer a node identifies itself by its secret.

    Attributes:
        listener: the listener of `inter.broker.listener.name`, the only listener for these requests; "": any listener.
        authorizer: decides about CLUSTER_ACTION on the cluster; None: the secret decides.
        secrets: the secrets of the nodes.
    """

    listener: str = ""
    authorizer: Authorizer | None = None
    secrets: NodeSecrets = NodeSecrets()

    def allowed(self, context: RequestContext, key: ApiKey) -> bool:
        """Returns True if the client may act as a node. Otherwise, logs that its request is refused.

        Args:
            context: the client and the API version of the request.
            key: the API of the request.
        """
        if self.listener and context.listener != self.listener:
            log_refusal(WRONG_LISTENER, context, key)
            return False
        authorizer = self.authorizer
        if authorizer is None:
            secrets = self.secrets.known
            if secrets is None or context.node_secret in secrets:
                return True
            log_refusal(WRONG_SECRET, context, key)
            return False
        if authorizer.allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return True
        log_refusal(NO_PERMISSION, context, key, context.principal)
        return False


def log_refusal(message: str, context: RequestContext, key: ApiKey, *values: object) -> None:
    """Logs that this node refuses a request that only nodes may send.

    Args:
        message: the message, which begins with `REFUSED`.
        context: the client and the API version of the request.
        key: the API of the request.
        values: further values of the message.
    """
    name = api_name(key)
    about = fields(api=name, client_id=context.client_id, connection=context.connection_id)
    logger.warning(message, name, context.client_host, context.listener, *values, extra=about)


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
