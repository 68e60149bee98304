"""Makes the APIs of the share coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi, Maker, deferred_apis
from kcore.share import apis

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.topics import TopicImage
    from kcore.share.coordinator import ShareCoordinator


def share_state_apis(
    coordinator: ShareCoordinator, topics: TopicImage, authorizer: Authorizer | None = None
) -> list[DeferredApi]:
    """Returns the APIs of the share coordinator.

    Args:
        coordinator: the node's share coordinator.
        topics: the cluster's topics.
        authorizer: decides about permissions; None allows all requests.
    """
    makers: dict[ApiKey, Maker] = {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: lambda: apis.InitializeShareGroupStateApi(coordinator, topics, authorizer),
        ApiKey.READ_SHARE_GROUP_STATE: lambda: apis.ReadShareGroupStateApi(coordinator, topics, authorizer),
        ApiKey.WRITE_SHARE_GROUP_STATE: lambda: apis.WriteShareGroupStateApi(coordinator, topics, authorizer),
        ApiKey.DELETE_SHARE_GROUP_STATE: lambda: apis.DeleteShareGroupStateApi(coordinator, topics, authorizer),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: lambda: apis.ReadShareGroupStateSummaryApi(
            coordinator, topics, authorizer
        ),
    }
    return deferred_apis(apis.VERSIONS, makers)
