"""What the APIs of the control plane have in common: they are decided in the metadata shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import Api, RequestContext

if TYPE_CHECKING:
    from kcore.broker.topic_machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shard import Shard

Request = TypeVar("Request")
Response = TypeVar("Response")

SHARD_REFUSALS = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
"""How a shard says that it cannot serve now; clients of these APIs know other words for it."""


class ControlApi(Api[Request, Response]):
    """An API that reads or changes the metadata. Subclasses say how in `decide`.

    Args:
        shard: the metadata.
        authorizer: who may do what; None allows all.
    """

    __slots__ = ("authorizer", "shard")

    storage_error: ClassVar[ErrorCode] = ErrorCode.NOT_CONTROLLER
    """What a client is told whose change could not be written: nothing of it happened, ask again."""

    def __init__(self, shard: Shard[MetadataMachine], authorizer: Authorizer | None = None) -> None:
        self.shard = shard
        self.authorizer = authorizer

    def handle(self, context: RequestContext, request: Request) -> Any:
        """Decides the request in the metadata shard."""
        return self.shard.run(self, context, request)

    def allowed(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Whether the one who asks may do it."""
        return self.authorizer is None or self.authorizer.allowed(context, operation, resource_type, name)


def told(code: ErrorCode) -> ErrorCode:
    """The code as clients of the control plane know it: a shard that cannot serve is a controller that moved."""
    return ErrorCode.NOT_CONTROLLER if code in SHARD_REFUSALS else code


def text(code: ErrorCode, message: str | None) -> str | None:
    """The text beside a code: null on success, the code's own if nobody said more."""
    return None if code == ErrorCode.NONE else code.message if message is None else message
