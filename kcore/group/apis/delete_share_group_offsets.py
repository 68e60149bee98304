"""DeleteShareGroupOffsets (API key 92), v0: deletes the states of an empty group's share partitions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.group.apis.share_offsets import ShareOffsetsApi
from kcore.group.share.chain import chain, with_result
from kcore.group.share.offsets import (
    MAX_NAMES,
    TOO_MANY,
    BeginDeleteInput,
    BeginDeleteResult,
    FinishDeleteInput,
    begin_delete,
    delete_in_steps,
    finish_delete,
    read_deleted,
)
from kcore.group.share.slicing import NAME_COST_US, in_slices
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
    from collections.abc import Generator

    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
    from kcore.runtime.api import RequestContext


class DeleteShareGroupOffsetsApi(ShareOffsetsApi[DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse]):
    """Handler of DeleteShareGroupOffsets requests, which need DELETE on the group and READ on each topic.

    The group's shard first records the topics as deleting. The share coordinator then deletes their share-partition
    states. Finally the shard removes the topics from the group's record.
    """

    key = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    request_type = DeleteShareGroupOffsetsRequest
    response_type = DeleteShareGroupOffsetsResponse
    versions = (0, 0)
    differs: ClassVar[str] = (
        f"{TOO_MANY[0].upper()}{TOO_MANY[1:]}; a request with more is refused with INVALID_REQUEST."
    )

    __slots__ = ()

    def handle(self, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> Any:
        """Authorizes the client, looks up the topics, and runs the three steps that the class describes."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        refusal = self.refusal(context, Operation.DELETE, request.group_id)
        if refusal:
            return self.error(context, request, refusal)
        if len(request.topics) > MAX_NAMES:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, TOO_MANY)
        names = len(request.topics)
        slices, shard = self._shards.slices, self._shards.of(request.group_id)

        def run(found: tuple[BeginDeleteInput, list[DeleteShareGroupOffsetsResponseTopic]]) -> Any:
            deletion, refused = found
            response = chain(
                self,
                context,
                deletion,
                shard.run(self, context, deletion),
                lambda deleting: in_slices(
                    slices,
                    self,
                    context,
                    deletion,
                    delete_in_steps(deleting),
                    names + sum(map(len, deleting.partitions.values())),
                    lambda state_request: self._delete(deleting, state_request),
                ),
                lambda deleting: in_slices(
                    slices,
                    self,
                    context,
                    deletion,
                    read_deleted(deleting),
                    names + sum(map(len, deleting.partitions.values())),
                    lambda deleted: shard.run(self, context, deleted),
                ),
            )
            if not refused:
                return response
            return gather(self, context, request, [response], lambda parts: _with(refused, parts[0]))

        return in_slices(slices, self, context, request, self._look_up(context, request), names, run)

    def _look_up(
        self, context: RequestContext, request: DeleteShareGroupOffsetsRequest
    ) -> Generator[int, None, tuple[BeginDeleteInput, list[DeleteShareGroupOffsetsResponseTopic]]]:
        """Returns a pair: the `BeginDeleteInput` of the allowed topics, and the responses of the refused topics."""
        authorizer, code = self._authorizer, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        deletion, refused = BeginDeleteInput(request.group_id, []), []
        for topic in request.topics:
            name = topic.topic_name
            if authorizer is None or authorizer.allowed(context, Operation.READ, ResourceType.TOPIC, name):
                deletion.topics.append((name, self._topics.by_name(name)))
            else:
                refused.append(
                    DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=code, error_message=code.message)
                )
            yield NAME_COST_US
        return deletion, refused

    def _delete(self, deleting: BeginDeleteResult, request: DeleteShareGroupStateRequest) -> Any:
        """Sends `request` to the share coordinator, and adds the coordinator's response to `deleting`.

        Returns `deleting` with this response, or a `Pending` for `deleting`. If `request` names no topics, there is no
        state to delete, and the method returns the response to the client instead.
        """
        if not request.topics:
            return DeleteShareGroupOffsetsResponse(responses=deleting.responses)
        persister = self._services.persister
        assert persister is not None, "a served node has a persister"
        return with_result(self, deleting, persister.delete(request))

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, request: BeginDeleteInput | FinishDeleteInput
    ) -> Any:
        """Records topics as deleting (`BeginDeleteInput`), or removes deleted topics (`FinishDeleteInput`)."""
        return (
            begin_delete(machine, request) if isinstance(request, BeginDeleteInput) else finish_delete(machine, request)
        )

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> DeleteShareGroupOffsetsResponse:
        """Returns a response with the code for the whole request, without topics."""
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or code.message)


def _with(
    refused: list[DeleteShareGroupOffsetsResponseTopic], response: DeleteShareGroupOffsetsResponse
) -> DeleteShareGroupOffsetsResponse:
    """Returns the response with the entries of the refused topics added, unless the whole request failed."""
    if response.error_code:
        return response
    return DeleteShareGroupOffsetsResponse(responses=[*refused, *response.responses])
