"""The common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kcore.group.apis.base import GroupApi
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.pending import gather_each

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.group.streams.services import StreamsServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards

Request = TypeVar("Request")
Response = TypeVar("Response")


class GroupDescribeApi(GroupApi[Request, Response]):
    """Describes groups of one of the new protocols.

    The client needs DESCRIBE on a group and on all of its topics. Each group is described by its own shard, with its
    own error.

    Args:
        shards: the group shards.
        services: the switch of the protocol.
        authorizer: checks permissions; None allows all.
    """

    request_type: ClassVar[type[Any]]
    response_type: ClassVar[type[Any]]
    group_response_type: ClassVar[type[Any]]
    """The class of one group's part of a response."""

    __slots__ = ("_services",)

    def __init__(
        self,
        shards: Shards[GroupShard],
        services: ConsumerServices | ShareGroupServices | StreamsServices,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services

    @abstractmethod
    def describe(self, machine: GroupShard, group_id: str) -> Any:
        """Returns the group's part of the response.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if it is not a group of the API's protocol.
        """

    @abstractmethod
    def topics_of(self, machine: GroupShard, described: Any) -> Iterable[str]:
        """Returns the names of the topics of a described group, on which the client needs DESCRIBE."""

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Runs the request in the shard of each group; the response preserves duplicates."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        include_operations = request.include_authorized_operations
        return gather_each(
            self,
            context,
            request,
            request.group_ids,
            lambda group_id: self._part(context, group_id, include_operations),
            self._merged,
            self._shards.slices,
        )

    def _part(self, context: RequestContext, group_id: str, include_operations: bool) -> Any:
        part = self.request_type(group_ids=(group_id,), include_authorized_operations=include_operations)
        return self.ask(context, group_id, part, self.refusal(context, Operation.DESCRIBE, group_id))

    def _merged(self, parts: list[Any]) -> Any:
        return self.response_type(groups=[group for part in parts for group in part.groups])

    def decide(self, machine: GroupShard, context: RequestContext, request: Any) -> Any:
        """Describes the one group in `request`.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if it is not a group of the API's protocol.
        """
        (group_id,) = request.group_ids
        described = self.describe(machine, group_id)
        authorizer = self._authorizer
        if authorizer is not None and not all(
            authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
            for topic in self.topics_of(machine, described)
        ):
            return self.error(
                context,
                request,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the client may not DESCRIBE all topics of the group",
            )
        if request.include_authorized_operations:
            described.authorized_operations = authorized_operations(authorizer, context, ResourceType.GROUP, group_id)
        return self.response_type(groups=[described])

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        """Returns a response with the code for every group, without a state."""
        return self.response_type(
            groups=[
                self.group_response_type(error_code=code, error_message=message, group_id=group_id)
                for group_id in request.group_ids
            ]
        )
