"""Makes the APIs of share consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker import apis
from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi, Maker, deferred_apis

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.data.fetch_budget import FetchMemoryBudget
    from kcore.broker.share.share_partitions import SharePartitions
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.cluster import ClusterView


def share_apis(
    share_partitions: SharePartitions,
    enabled: Callable[[], bool],
    *,
    room: FetchMemoryBudget,
    cluster: ClusterView,
    authorizer: Authorizer | None = None,
) -> list[DeferredApi]:
    """Returns ShareFetch and ShareAcknowledge.

    Args:
        share_partitions: the share partitions of the node.
        enabled: returns True if share groups are enabled; UNSUPPORTED_VERSION otherwise.
        room: the memory for fetch responses.
        cluster: this node's endpoints.
        authorizer: decides about permissions; None allows all requests.
    """
    makers: dict[ApiKey, Maker] = {
        ApiKey.SHARE_FETCH: lambda: apis.ShareFetchApi(
            share_partitions, enabled, room, cluster=cluster, authorizer=authorizer
        ),
        ApiKey.SHARE_ACKNOWLEDGE: lambda: apis.ShareAcknowledgeApi(
            share_partitions, enabled, cluster=cluster, authorizer=authorizer
        ),
    }
    return deferred_apis(apis.VERSIONS, makers)
