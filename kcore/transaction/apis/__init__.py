"""The APIs of the transaction coordinator, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.transaction.apis.add_offsets_to_txn import AddOffsetsToTxnApi
from kcore.transaction.apis.add_partitions_to_txn import AddPartitionsToTxnApi
from kcore.transaction.apis.describe_transactions import DescribeTransactionsApi
from kcore.transaction.apis.end_txn import EndTxnApi
from kcore.transaction.apis.list_transactions import ListTransactionsApi
from kcore.transaction.apis.write_txn_markers import WriteTxnMarkersApi

if TYPE_CHECKING:
    from collections.abc import Collection

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import Api
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.local_markers import LocalMarkers


def transaction_apis(
    coordinator: TransactionCoordinator,
    markers: LocalMarkers,
    *,
    topics: TopicImage,
    internal_topics: Collection[str],
    pipeline: CommitPipeline,
    authorizer: Authorizer | None = None,
) -> list[Api[Any, Any]]:
    """Every API of transactions, but InitProducerId: that is also for producers without transactions.

    Args:
        coordinator: the node's transactions.
        markers: writes end markers to the node's partitions.
        topics: the cluster's topics.
        internal_topics: the names of those that clients must not write to.
        pipeline: commits what is decided.
        authorizer: who may do what; None allows all.
    """
    return [
        AddPartitionsToTxnApi(coordinator, topics, internal_topics, authorizer),
        AddOffsetsToTxnApi(coordinator, topics, authorizer),
        EndTxnApi(coordinator, authorizer),
        WriteTxnMarkersApi(markers, pipeline, authorizer),
        DescribeTransactionsApi(coordinator, authorizer),
        ListTransactionsApi(coordinator, authorizer),
    ]
