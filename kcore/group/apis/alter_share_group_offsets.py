"""AlterShareGroupOffsets (API key 91), v0: sets the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.group.apis.share_offsets import ShareOffsetsApi
from kcore.group.share.chain import chain, with_result
from kcore.group.share.offsets import (
    MAX_NAMES,
    TOO_MANY,
    BeginAlterInput,
    BeginAlterResult,
    FinishAlterInput,
    begin_alter,
    finish_alter,
    initialize_in_steps,
    look_up_altered,
    read_initialized,
)
from kcore.group.share.slicing import FEW_PARTITIONS, NAME_COST_US, ROW_COST_US, in_slices
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from collections.abc import Generator

    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
    from kcore.runtime.api import RequestContext


class AlterShareGroupOffsetsApi(ShareOffsetsApi[AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse]):
    """Handler of AlterShareGroupOffsets requests, which need READ on the group and on each topic.

    The group's shard first records the partitions as initializing. The share coordinator then initializes their states.
    Finally the shard records the initialized partitions.
    """

    key = ApiKey.ALTER_SHARE_GROUP_OFFSETS
    request_type = AlterShareGroupOffsetsRequest
    response_type = AlterShareGroupOffsetsResponse
    versions = (0, 0)
    differs: ClassVar[str] = (
        f"{TOO_MANY[0].upper()}{TOO_MANY[1:]}; a request with more is refused with INVALID_REQUEST."
    )

    __slots__ = ()

    def handle(self, context: RequestContext, request: AlterShareGroupOffsetsRequest) -> Any:
        """Authorizes the client, looks up the topics, and runs the three steps that the class describes."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        refusal = self.refusal(context, Operation.READ, request.group_id)
        if refusal:
            return self.error(context, request, refusal)
        names = sum(len(topic.partitions) + 1 for topic in request.topics)
        if names > MAX_NAMES:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, TOO_MANY)
        slices, shard = self._shards.slices, self._shards.of(request.group_id)

        def run(found: tuple[BeginAlterInput, list[AlterShareGroupOffsetsResponseTopic]]) -> Any:
            alteration, refused = found
            response = chain(
                self,
                context,
                alteration,
                shard.run(self, context, alteration),
                lambda altered: in_slices(
                    slices,
                    self,
                    context,
                    alteration,
                    initialize_in_steps(altered),
                    names,
                    lambda state_request: self._initialize(altered, state_request),
                ),
                lambda altered: in_slices(
                    slices,
                    self,
                    context,
                    alteration,
                    read_initialized(altered),
                    names,
                    lambda initialized: shard.run(self, context, initialized),
                ),
            )
            if not refused:
                return response
            return gather(self, context, request, [response], lambda parts: _with(refused, parts[0]))

        return in_slices(slices, self, context, request, self._look_up(context, request), names, run)

    def _look_up(
        self, context: RequestContext, request: AlterShareGroupOffsetsRequest
    ) -> Generator[int, None, tuple[BeginAlterInput, list[AlterShareGroupOffsetsResponseTopic]]]:
        """Returns a pair: the `BeginAlterInput` of the allowed topics, and the responses of the refused topics."""
        allowed, refused = [], []
        for topic in request.topics:
            code = self._refusal_of(context, topic.topic_name)
            yield NAME_COST_US
            if code and topic.partitions:
                refused.append((yield from _refused(topic, code)))
            elif code:
                continue  # as in Kafka, the response has only topics with partitions
            else:
                allowed.append(topic)
        alteration = yield from look_up_altered(self._topics, request.group_id, allowed)
        return alteration, refused

    def _refusal_of(self, context: RequestContext, name: str) -> ErrorCode:
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.allowed(context, Operation.READ, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE if self._topics.by_name(name) is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _initialize(self, altered: BeginAlterResult, request: InitializeShareGroupStateRequest) -> Any:
        """Sends `request` to the share coordinator, and adds the coordinator's response to `altered`.

        If all requested topics were refused, the method returns the response to the client. Otherwise, it returns
        `altered` with the coordinator's response, or a `Pending` for `altered`.
        """
        if not altered.alteration.responses:
            return AlterShareGroupOffsetsResponse()
        persister = self._services.persister
        assert persister is not None, "a served node has a persister"
        return with_result(self, altered, persister.initialize(request))

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, request: BeginAlterInput | FinishAlterInput
    ) -> Any:
        """Records partitions as initializing (`BeginAlterInput`) or as initialized (`FinishAlterInput`)."""
        return begin_alter(machine, request) if isinstance(request, BeginAlterInput) else finish_alter(machine, request)

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> AlterShareGroupOffsetsResponse:
        """Returns a response with the code for the whole request, without topics."""
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=message or code.message)


def _refused(
    topic: AlterShareGroupOffsetsRequestTopic, code: ErrorCode
) -> Generator[int, None, AlterShareGroupOffsetsResponseTopic]:
    """Builds the response entry of a refused topic in steps; yields the cost of each step in microseconds."""
    rows: list[AlterShareGroupOffsetsResponsePartition] = []
    for first in range(0, len(topic.partitions), FEW_PARTITIONS):
        some = topic.partitions[first : first + FEW_PARTITIONS]
        rows += [
            AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index, error_code=code, error_message=code.message
            )
            for partition in some
        ]
        yield ROW_COST_US * len(some)
    return AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=rows)


def _with(
    refused: list[AlterShareGroupOffsetsResponseTopic], response: AlterShareGroupOffsetsResponse
) -> AlterShareGroupOffsetsResponse:
    """Returns the response with the entries of the refused topics added, unless the whole request failed."""
    if response.error_code:
        return response
    return AlterShareGroupOffsetsResponse(responses=[*refused, *response.responses])
