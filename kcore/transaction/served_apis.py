"""Makes the APIs of the transaction coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi, Maker, deferred_apis
from kcore.transaction import apis

if TYPE_CHECKING:
    from collections.abc import Collection

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
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
    slices: Slices | None = None,
) -> list[DeferredApi]:
    """Returns every API of transactions except InitProducerId, which also serves producers without transactions.

    Args:
        coordinator: the node's transaction coordinator.
        markers: writes end markers to the node's partitions.
        topics: the cluster's topics.
        internal_topics: the names of topics that clients must not write to.
        pipeline: commits decisions.
        authorizer: decides about permissions; None allows all requests.
        slices: runs long requests in slices; None: they are decided at once.
    """
    makers: dict[ApiKey, Maker] = {
        ApiKey.ADD_PARTITIONS_TO_TXN: lambda: apis.AddPartitionsToTxnApi(
            coordinator, topics, internal_topics, authorizer
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: lambda: apis.AddOffsetsToTxnApi(coordinator, topics, authorizer),
        ApiKey.END_TXN: lambda: apis.EndTxnApi(coordinator, authorizer),
        ApiKey.WRITE_TXN_MARKERS: lambda: apis.WriteTxnMarkersApi(markers, pipeline, authorizer, slices),
        ApiKey.DESCRIBE_TRANSACTIONS: lambda: apis.DescribeTransactionsApi(coordinator, authorizer),
        ApiKey.LIST_TRANSACTIONS: lambda: apis.ListTransactionsApi(coordinator, authorizer),
    }
    return deferred_apis(apis.VERSIONS, makers)
