"""UnregisterBroker on the controller: removes a node that has left the cluster for good (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
from kcore.broker.metadata.brokers import unregistration_record
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext


class UnregisteringApi(ControlApi[UnregisterBrokerRequest, UnregisterBrokerResponse]):
    """Handler of UnregisterBroker requests: removes the registration of a node that is not alive and leads no
    partition.

    `ControlApi` documents the arguments.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.UNREGISTER_BROKER
    request_type: ClassVar[type] = UnregisterBrokerRequest
    response_type: ClassVar[type] = UnregisterBrokerResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: UnregisterBrokerRequest) -> Any:
        """Writes the record of the removal; a node that starts again is registered again."""
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        node_id, image = request.broker_id, machine.image
        broker = image.brokers.get(node_id)
        if broker is None:
            code, reason = ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered"
        elif not broker.fenced:
            code, reason = ErrorCode.INVALID_REQUEST, f"broker {node_id} is alive: stop it first"
        elif any(node_id in image.leading_nodes(topic.topic_id) for topic in image.all()):
            code, reason = ErrorCode.INVALID_REQUEST, f"broker {node_id} still leads partitions: try again later"
        else:
            response = UnregisterBrokerResponse(error_message=None)
            return machine.outcome([unregistration_record(broker)], response)
        return self.error(context, request, code, reason)

    def error(
        self, context: RequestContext, request: UnregisterBrokerRequest, code: ErrorCode, message: str | None = None
    ) -> UnregisterBrokerResponse:
        """Makes a response with the error code and its text."""
        code = client_code(code)
        return UnregisterBrokerResponse(error_code=code, error_message=message or code.message)
