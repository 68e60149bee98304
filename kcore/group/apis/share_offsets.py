"""The common part of the APIs about the start offsets of share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kcore.group.apis.base import GroupApi

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicImage

Request = TypeVar("Request")
Response = TypeVar("Response")


class ShareOffsetsApi(GroupApi[Request, Response]):
    """An API about the start offsets of share groups.

    Args:
        shards: the group shards.
        services: has the setting that enables share groups, the persister, and the end offsets of partitions.
        topics: the cluster's topics.
        authorizer: checks permissions; None allows all.
    """

    __slots__ = ("_services", "_topics")

    def __init__(
        self,
        shards: Shards[GroupShard],
        services: ShareGroupServices,
        topics: TopicImage,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services
        self._topics = topics
