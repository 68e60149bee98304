"""The base class of the APIs that describe, alter and delete the start offsets of share groups (KIP-932)."""

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
    """The base class of the APIs that describe, alter or delete the start offsets of share groups.

    Args:
        shards: the group shards.
        services: the persister, the end offsets of partitions, and the setting that enables share groups.
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
