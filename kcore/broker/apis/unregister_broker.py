"""UnregisterBroker (key 64, version 0): the cluster has no broker that could be removed (KIP-631)."""

from __future__ import annotations

from typing import ClassVar

from kcore.broker.apis.quorum_changes import MembershipApi
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class UnregisterBrokerApi(MembershipApi[UnregisterBrokerRequest, UnregisterBrokerResponse]):
    """Handler of UnregisterBroker requests. It refuses them, because the broker is either unknown or this node."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.UNREGISTER_BROKER
    request_type: ClassVar[type] = UnregisterBrokerRequest
    response_type: ClassVar[type] = UnregisterBrokerResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    differs: ClassVar[str] = "A single node refuses every request. A cluster unregisters only nodes that are not alive."

    def check(self, request: UnregisterBrokerRequest) -> KafkaError:
        """Returns the reason of the refusal."""
        if request.broker_id != self.cluster.node_id:
            return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
        return KafkaError(ErrorCode.INVALID_REQUEST, "the only broker of a cluster cannot be removed")
