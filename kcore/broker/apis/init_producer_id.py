"""InitProducerId (key 22, versions 0-5): ids of idempotent producers (KIP-98). The transaction coordinator serves
requests with a transactional id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kcore.broker.acl.authorizer import AclAuthorizer
from kcore.broker.apis.control import SHARD_REFUSALS, ControlApi
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kcore.runtime.topic_permissions import PERMISSION_COST_US, TOPICS_PER_STEP

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.producer_ids import ProducerIds
    from kcore.broker.metadata.topics import Topics
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class TransactionalProducers(Protocol):
    """The part of the transaction coordinator that InitProducerId needs."""

    def handle(self, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Serves a request with a transactional id; returns the response or a `Pending`."""
        ...


class InitProducerIdApi(ControlApi[InitProducerIdRequest, InitProducerIdResponse]):
    """Handler of InitProducerId requests.

    Args:
        shard: the metadata shard.
        ids: allocates ids.
        topics: the existing topics. A client with permission to write to one of them also has permission to use an
            idempotent producer.
        transactional: serves requests with a transactional id.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_ids", "_topics", "_transactional")

    key: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID
    request_type: ClassVar[type] = InitProducerIdRequest
    response_type: ClassVar[type] = InitProducerIdResponse
    versions: ClassVar[tuple[int, int]] = (0, 5)
    storage_error: ClassVar[ErrorCode] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        ids: ProducerIds,
        topics: Topics,
        transactional: TransactionalProducers,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shard, authorizer)
        self._ids = ids
        self._topics = topics
        self._transactional = transactional

    def handle(self, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Checks the client's permission, and then passes the request on.

        The transaction coordinator serves requests with a transactional id. The metadata shard serves the others.
        """
        if request.transactional_id is not None:
            if not self.allowed(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
                return self.error(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return self._run(context, request)
        if self.allowed(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
            return self._run(context, request)
        return self.shard.slices.requests.run(
            self,
            context,
            request,
            self._may_write(context),
            lambda allowed: (
                self._run(context, request)
                if allowed
                else self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            ),
            eager=True,
        )

    def _may_write(self, context: RequestContext) -> Work:
        """Decides if the client has permission to write to at least one topic.

        A custom authorizer decides about each topic, in slices.
        """
        authorizer = self.authorizer
        if authorizer is None:
            return True
        if isinstance(authorizer, AclAuthorizer):
            return authorizer.allowed_on_any(context, Operation.WRITE, ResourceType.TOPIC)
        for number, topic in enumerate(list(self._topics.all()), 1):
            if authorizer.allowed(context, Operation.WRITE, ResourceType.TOPIC, topic.name):
                return True
            if number % TOPICS_PER_STEP == 0:
                yield TOPICS_PER_STEP * PERMISSION_COST_US
        return False

    def _run(self, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Serves a request after the check of the client's permission."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            return self.shard.run(self, context, request)
        if request.transactional_id == "":
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        return self._transactional.handle(context, request)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Allocates a new id with epoch 0. An earlier id and epoch in the request have no effect."""
        producer_id = self._ids.next_id()
        if producer_id is None:
            return self.error(context, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def error(
        self, context: RequestContext, request: InitProducerIdRequest, code: ErrorCode, message: str | None = None
    ) -> InitProducerIdResponse:
        """Makes a response with the error code and no id."""
        if code in SHARD_REFUSALS and request.transactional_id is None:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
