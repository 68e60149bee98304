"""The common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from kcore.group.apis.base import GroupApi
from kcore.group.description import Description
from kcore.group.share.chain import chain
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.pending import FEW_NAMES, gather_each
from kcore.runtime.sliced import step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.group.streams.services import StreamsServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work

Request = TypeVar("Request")
Response = TypeVar("Response")

TOPIC_COST_US: Final = 5
"""The cost of checking the permission on a topic, in microseconds."""


class GroupDescribeApi(GroupApi[Request, Response]):
    """The base class of handlers that describe groups of one of the new protocols.

    The client needs DESCRIBE on a group and on all of its topics. Each group is described by its own shard, with its
    own error.

    Args:
        shards: the group shards.
        services: has the setting that enables the protocol.
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
    def describe(self, machine: GroupShard, group_id: str) -> Description:
        """Returns the current description of a group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if the group does not have the API's protocol.
        """

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Describes each group in its shard; the response preserves duplicates.

        The decision of the shard only collects the immutable objects that describe the group and its members. Slices
        convert these objects afterwards, because the assignments may have 100,000 topics.
        """
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        names = tuple(dict.fromkeys(request.group_ids))
        slices = self._shards.slices
        collected = gather_each(
            self,
            context,
            request,
            names,
            lambda group_id: self._part(context, group_id),
            list,
            slices,
            self.cost_of_description,
        )

        def convert(parts: list[Any]) -> Any:
            work = self._converted(context, request, dict(zip(names, parts, strict=True)))
            if slices is None:
                return step(work, -1)[1]
            return slices.requests.run(self, context, request, work, eager=len(names) <= FEW_NAMES)

        return chain(self, context, request, collected, convert)

    def _part(self, context: RequestContext, group_id: str) -> Any:
        part = self.request_type(group_ids=(group_id,))
        return self.run_part(context, group_id, part, self.refusal(context, Operation.DESCRIBE, group_id))

    def _converted(self, context: RequestContext, request: Any, parts: Mapping[str, Any]) -> Work:
        """Converts the descriptions in `parts`, a mapping by group id; returns the response."""
        converted = {}
        for group_id, part in parts.items():
            (found,) = part.groups
            if isinstance(found, Description):
                found = yield from self._convert(context, request, found)
            converted[group_id] = found
        return self.response_type(groups=[converted[group_id] for group_id in request.group_ids])

    def _convert(self, context: RequestContext, request: Any, description: Description) -> Work:
        described, authorizer = description.described, self._authorizer
        yield from description.work
        if authorizer is not None:
            for topic in description.topics:
                if not authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic):
                    return self.group_response_type(
                        group_id=described.group_id,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        error_message="the client may not DESCRIBE all topics of the group",
                    )
                yield TOPIC_COST_US
        if request.include_authorized_operations:
            described.authorized_operations = authorized_operations(
                authorizer, context, ResourceType.GROUP, described.group_id
            )
        return described

    def decide(self, machine: GroupShard, context: RequestContext, request: Any) -> Any:
        """Collects the description of the group that `request` names.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if the group does not have the API's protocol.
        """
        (group_id,) = request.group_ids
        return self.response_type(groups=[self.describe(machine, group_id)])

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        """Returns a response with the code for every group, without a state."""
        return self.response_type(
            groups=[
                self.group_response_type(error_code=code, error_message=message, group_id=group_id)
                for group_id in request.group_ids
            ]
        )
