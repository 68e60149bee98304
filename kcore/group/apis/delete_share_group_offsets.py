"""DeleteShareGroupOffsets (API key 92), v0: deletes the state of an empty share group for topics (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.group.apis.base import GroupApi
from kcore.group.share.chain import chain, with_result
from kcore.group.share.offsets import MAX_NAMES, TOO_MANY, Deleted, begin_delete, finish_delete
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards


class DeleteShareGroupOffsetsApi(GroupApi[DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse]):
    """Serves DeleteShareGroupOffsets to clients with DELETE on the group and READ on each topic.

    The group lists the topics as deleting, the share coordinator deletes their states, and the group removes them.

    Args:
        shards: the group shards.
        services: the switch of share groups, and the persister.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    request_type = DeleteShareGroupOffsetsRequest
    response_type = DeleteShareGroupOffsetsResponse
    versions = (0, 0)
    differs: ClassVar[str] = f"{TOO_MANY[0].upper()}{TOO_MANY[1:]}; longer requests are INVALID_REQUEST."

    __slots__ = ("_services",)

    def __init__(
        self, shards: Shards[GroupShard], services: ShareGroupServices, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services

    def handle(self, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> Any:
        """Authorizes the client, and runs both decisions with the share coordinator's operation between them."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        if not self.allowed(context, Operation.DELETE, request.group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return self.error(context, request, ErrorCode.INVALID_GROUP_ID)
        if len(request.topics) > MAX_NAMES:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, TOO_MANY)
        authorizer = self._authorizer
        allowed, refused = [], []
        for topic in request.topics:
            if authorizer is None or authorizer.allowed(context, Operation.READ, ResourceType.TOPIC, topic.topic_name):
                allowed.append(topic)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        topic_name=topic.topic_name, error_code=code, error_message=code.message
                    )
                )
        if not allowed:
            return DeleteShareGroupOffsetsResponse(responses=refused)
        part = DeleteShareGroupOffsetsRequest(group_id=request.group_id, topics=allowed)
        shard = self._shards.of(request.group_id)
        response = chain(
            self,
            context,
            part,
            shard.run(self, context, part),
            self._delete,
            lambda deleted: shard.run(self, context, deleted),
        )
        if not refused:
            return response
        return gather(self, context, request, [response], lambda parts: _with(refused, parts[0]))

    def _delete(self, deleted: Deleted) -> Any:
        """Asks the share coordinator to delete the states; returns `deleted` with its result."""
        if not deleted.request.topics:
            return DeleteShareGroupOffsetsResponse(responses=deleted.responses)
        persister = self._services.persister
        assert persister is not None, "a served node has a persister"
        return with_result(self, deleted, persister.delete(deleted.request))

    def decide(
        self, machine: GroupShard, context: RequestContext, request: DeleteShareGroupOffsetsRequest | Deleted
    ) -> Any:
        """Decides the first step, or the second one, whose input is the result of the first."""
        return finish_delete(machine, request) if isinstance(request, Deleted) else begin_delete(machine, request)

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> DeleteShareGroupOffsetsResponse:
        """Returns a response with the code for the whole request, without topics."""
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or code.message)


def _with(
    refused: list[DeleteShareGroupOffsetsResponseTopic], response: DeleteShareGroupOffsetsResponse
) -> DeleteShareGroupOffsetsResponse:
    """Returns the response with the refused topics, unless the whole request failed."""
    if response.error_code:
        return response
    return DeleteShareGroupOffsetsResponse(responses=[*refused, *response.responses])
