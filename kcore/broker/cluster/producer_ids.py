"""Producer ids of a node that is not the controller: blocks from AllocateProducerIds (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import client_code
from kcore.broker.cluster.node_access import NodeApi
from kcore.broker.metadata.producer_ids import BLOCK_SIZE, ProducerIds
from kcore.broker.metadata.records import producer_ids_record
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.peers import Peers
    from kcore.runtime.shard import Shard

LOW_IDS = BLOCK_SIZE // 10
"""Number of remaining ids at which the next block is requested, as in Kafka."""


class SharedProducerIds(ProducerIds):
    """The producer ids that a node allocates from its blocks.

    Args:
        shard: the metadata shard.
        cluster: this node and the controller.
        epoch: the epoch of this node's registration.
        peers: sends requests to the controller.
    """

    __slots__ = ("_cluster", "_end", "_epoch", "_next", "_next_block_ids", "_peers", "_requesting")

    def __init__(self, shard: Shard[MetadataMachine], cluster: ClusterView, epoch: int, peers: Peers) -> None:
        super().__init__(shard, cluster.node_id)
        self._cluster = cluster
        self._epoch = epoch
        self._peers = peers
        self._next = self._end = 0
        self._next_block_ids: tuple[int, int] | None = None  # a block that follows the current block
        self._requesting = False

    def next_id(self) -> int | None:
        """Returns the next id; None while this node has no ids left and waits for a block from the controller."""
        if self._shard.machine.leads():
            return super().next_id()
        if self._next == self._end and self._next_block_ids is not None:
            self._next, self._end = self._next_block_ids
            self._next_block_ids = None
        if self._end - self._next <= LOW_IDS and self._next_block_ids is None:
            self._request_block()
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def _request_block(self) -> None:
        controller = self._cluster.controller_id
        if self._requesting or controller < 0:
            return
        request = AllocateProducerIdsRequest(broker_id=self._cluster.node_id, broker_epoch=self._epoch)
        try:
            self._requesting = True
            self._peers.send(controller, request, 0, self._arrived)
        except BaseException:
            self._requesting = False  # no response will come
            raise

    def _arrived(self, response: AllocateProducerIdsResponse | None) -> None:
        self._requesting = False
        if response is not None and not response.error_code:
            start = response.producer_id_start
            self._next_block_ids = start, start + response.producer_id_len


class AllocateProducerIdsApi(NodeApi[AllocateProducerIdsRequest, AllocateProducerIdsResponse]):
    """Handler of AllocateProducerIds requests on the controller: allocates a block for another node.

    `NodeApi` documents the arguments.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.ALLOCATE_PRODUCER_IDS
    request_type: ClassVar[type] = AllocateProducerIdsRequest
    response_type: ClassVar[type] = AllocateProducerIdsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: AllocateProducerIdsRequest) -> Any:
        """Returns an outcome with the record of the next block of producer ids.

        The requesting node must be registered with the broker epoch in the request.
        """
        if not self.access.allowed(context, self.key):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker = machine.image.brokers.get(request.broker_id)
        if broker is None:
            return self.error(context, request, ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != request.broker_epoch:
            return self.error(context, request, ErrorCode.STALE_BROKER_EPOCH)
        start = machine.image.next_producer_id
        response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
        return machine.outcome([producer_ids_record(request.broker_id, start + BLOCK_SIZE)], response)

    def error(
        self, context: RequestContext, request: AllocateProducerIdsRequest, code: ErrorCode, message: str | None = None
    ) -> AllocateProducerIdsResponse:
        """Makes a response with the error code and no ids."""
        return AllocateProducerIdsResponse(error_code=client_code(code), producer_id_start=-1, producer_id_len=0)
