"""Verification of transactional writes with coordinators on any node of a cluster (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kcore.protocol.records import TRANSACTION_STATE
from kcore.runtime.partitioner import partition_for
from kcore.runtime.peers import pending_code
from kcore.transaction.verification import TransactionVerifier

if TYPE_CHECKING:
    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.peers import Peers
    from kcore.runtime.pending import Pending
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.markers import Results

VERSION = 5
"""The version of AddPartitionsToTxn that brokers send if `transaction.version` is 2. Version 4 has the same fields."""


class RemoteCoordinators:
    """Client of the transaction coordinators on other nodes, which sends them AddPartitionsToTxn.

    Args:
        topics: the cluster's topics.
        cluster: the leaders of `__transaction_state`.
        peers: sends the requests.
    """

    __slots__ = ("_cluster", "_peers", "_topics")

    def __init__(self, topics: TopicImage, cluster: ClusterView, peers: Peers) -> None:
        self._topics = topics
        self._cluster = cluster
        self._peers = peers

    def node_of(self, transactional_id: str) -> int | None:
        """Returns the other node that coordinates an id; None if this node coordinates it, or if the coordinator is
        unknown.
        """
        topic = self._topics.by_name(TRANSACTION_STATE)
        if topic is None or not transactional_id:
            return None
        leader = self._cluster.leader(TRANSACTION_STATE, partition_for(transactional_id, topic.partitions))
        return None if leader is None or leader.node_id == self._cluster.node_id else leader.node_id

    def send(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[PartitionTuple],
        add: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Verifies or adds partitions with the coordinator on another node; calls `done` with the codes."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )

        def arrived(response: AddPartitionsToTxnResponse | None) -> None:
            failure = ErrorCode.NOT_COORDINATOR
            if response is not None and response.error_code:
                failure = ErrorCode(response.error_code)
            codes: dict[PartitionTuple, ErrorCode] = dict.fromkeys(partitions, failure)
            for result in () if response is None else response.results_by_transaction:
                for topic in result.topic_results:
                    for entry in topic.results_by_partition:
                        codes[topic.name, entry.partition_index] = ErrorCode(entry.partition_error_code)
            done(codes)

        self._peers.send(node_id, AddPartitionsToTxnRequest(transactions=[transaction]), VERSION, arrived)


class SharedTransactionVerifier(TransactionVerifier):
    """A `TransactionVerifier` whose coordinators may be on other nodes.

    If the coordinator is on another node, the addition of a partition is durable before the producer's batch. If the
    batch is never written, the transaction has a partition without records, in which the end marker changes nothing.

    Args:
        coordinator: the node's transaction coordinator.
        remote: the coordinators of other nodes.
    """

    __slots__ = ("_remote",)

    def __init__(self, coordinator: TransactionCoordinator, remote: RemoteCoordinators) -> None:
        super().__init__(coordinator)
        self._remote = remote

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[PartitionTuple],
        add: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Verifies or adds partitions, and calls `done` with their codes.

        If the coordinator is on another node, calls `done` after this function has returned.
        """
        node_id = self._remote.node_of(transactional_id)
        if node_id is None:
            super().verify(transactional_id, producer_id, producer_epoch, partitions, add, done)
        else:
            self._remote.send(node_id, transactional_id, producer_id, producer_epoch, partitions, add, done)

    def verify_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode | Pending:
        """Verifies that the partition of a group is in a transaction, or adds it. Returns the error code.

        If the coordinator is on another node, returns a `Pending` for the code.
        """
        node_id = self._remote.node_of(transactional_id)
        if node_id is None:
            return super().verify_group(transactional_id, producer_id, producer_epoch, topic, partition, add)
        pending = pending_code()
        self._remote.send(
            node_id,
            transactional_id,
            producer_id,
            producer_epoch,
            [(topic, partition)],
            add,
            lambda codes: pending.complete(codes[topic, partition]),
        )
        return pending
