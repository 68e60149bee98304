"""Construction of the APIs of the data plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker import apis
from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.data.transaction_verifier import PartitionVerifier
from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi, Maker, deferred_apis

if TYPE_CHECKING:
    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.data.fetch_session import FetchSessions
    from kcore.broker.data.partitions import Partitions
    from kcore.broker.data.transaction_verifier import ProduceVerifier
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime import CommitPipeline
    from kcore.runtime.cluster import ClusterView
    from kcore_ext.runtime.purgatory import Purgatory


def data_apis(
    partitions: Partitions,
    pipeline: CommitPipeline,
    purgatory: Purgatory,
    now: Now,
    config: Config,
    *,
    sessions: FetchSessions,
    cluster: ClusterView | None = None,
    authorizer: Authorizer | None = None,
    verifier: ProduceVerifier | None = None,
    room: FetchMemoryBudget | None = None,
    quotas: ClientQuotas | None = None,
) -> list[DeferredApi]:
    """Makes all APIs of the data plane.

    Args:
        partitions: the node's partitions.
        pipeline: commits appends.
        purgatory: holds long polls; its timer wheel also serves retries.
        now: the time of the round.
        config: the node's settings.
        sessions: the node's fetch sessions.
        cluster: the leaders of partitions.
        authorizer: decides about each operation; None allows all.
        verifier: the transaction coordinator; None: transactional batches are refused as if the coordinator were
            unreachable. It may be set later, as `verifier` of the Produce API's `partition_verifier`.
        room: the memory for fetch responses; None: limits each response to `fetch.max.bytes`, but not their sum.
        quotas: measures the rates of clients; None: there are no quotas.
    """
    partition_verifier = PartitionVerifier(verifier, purgatory.wheel, now)
    makers: dict[ApiKey, Maker] = {
        ApiKey.PRODUCE: lambda: apis.ProduceApi(
            partitions,
            pipeline,
            now,
            partition_verifier,
            cluster=cluster,
            authorizer=authorizer,
            config=config,
            quotas=quotas,
        ),
        ApiKey.FETCH: lambda: apis.FetchApi(
            partitions,
            purgatory,
            sessions,
            now,
            cluster=cluster,
            room=room or FetchMemoryBudget(config.fetch_max_bytes),
            authorizer=authorizer,
            quotas=quotas,
        ),
        ApiKey.LIST_OFFSETS: lambda: apis.ListOffsetsApi(partitions, pipeline, authorizer=authorizer),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: apis.OffsetForLeaderEpochApi(
            partitions, pipeline, authorizer=authorizer
        ),
        ApiKey.DELETE_RECORDS: lambda: apis.DeleteRecordsApi(partitions, pipeline, authorizer=authorizer),
        ApiKey.DESCRIBE_PRODUCERS: lambda: apis.DescribeProducersApi(partitions, authorizer=authorizer),
    }
    return deferred_apis(apis.VERSIONS, makers)
