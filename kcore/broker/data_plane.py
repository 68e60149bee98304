"""The data plane put together: its APIs, and the periodic work of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.broker.apis.delete_records import DeleteRecordsApi
from kcore.broker.apis.describe_producers import DescribeProducersApi
from kcore.broker.apis.fetch import FetchApi
from kcore.broker.apis.list_offsets import ListOffsetsApi
from kcore.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpochApi
from kcore.broker.apis.produce import ProduceApi
from kcore.broker.fetch_session import FetchSessions
from kcore.broker.transaction_verifier import VerificationDesk

if TYPE_CHECKING:
    from kcore.broker.partitions import Partitions
    from kcore.broker.transaction_verifier import ProduceVerifier
    from kcore.clock import Now
    from kcore.config import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime import Api, CommitPipeline
    from kcore.runtime.cluster import ClusterView
    from kcore_ext.purgatory import Purgatory


def data_apis(
    partitions: Partitions,
    pipeline: CommitPipeline,
    purgatory: Purgatory,
    now: Now,
    config: Config,
    *,
    random_id: Callable[[], int],
    cluster: ClusterView | None = None,
    authorizer: Authorizer | None = None,
    verifier: ProduceVerifier | None = None,
) -> list[Api[Any, Any]]:
    """All APIs of the data plane.

    Args:
        partitions: the node's partitions.
        pipeline: commits what is appended.
        purgatory: where long polls wait; its wheel is also that of retries.
        now: the time of the round.
        config: the node's settings.
        random_id: makes fetch session ids, 1 to 2^31 - 1.
        cluster: who leads what.
        authorizer: who may do what; None allows all.
        verifier: the transaction coordinator; None: there is none, and transactional batches are refused as by a
            broker that cannot reach it. It may be given later, as `verifier` of the Produce API's `desk`.
    """
    desk = VerificationDesk(verifier, purgatory.wheel, now)
    return [
        ProduceApi(
            partitions,
            pipeline,
            now,
            desk,
            cluster=cluster,
            authorizer=authorizer,
            verify_transactions=config.transaction_partition_verification_enable,
        ),
        FetchApi(
            partitions,
            purgatory,
            FetchSessions(config.max_incremental_fetch_session_cache_slots, random_id),
            now,
            cluster=cluster,
            max_bytes=config.fetch_max_bytes,
            authorizer=authorizer,
        ),
        ListOffsetsApi(partitions, pipeline, authorizer=authorizer),
        OffsetForLeaderEpochApi(partitions, pipeline, authorizer=authorizer),
        DeleteRecordsApi(partitions, pipeline, authorizer=authorizer),
        DescribeProducersApi(partitions, authorizer=authorizer),
    ]
