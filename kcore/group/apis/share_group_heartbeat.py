"""ShareGroupHeartbeat (API key 76), v1: joins, keeps alive and leaves a share group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kcore.group.apis.base import READ_GROUP, GroupApi
from kcore.group.apis.consumer_group_heartbeat import MAX_SUBSCRIBED_TOPICS, is_blank
from kcore.group.apis.long_subscription import NAME_COST_US, NAMES_PER_STEP, last_response
from kcore.group.consumer.target import INLINE_TOPICS
from kcore.group.heartbeat_parts import SEPARATE_PARTS, HeartbeatPart
from kcore.group.shard import GroupShard
from kcore.group.share import target
from kcore.group.share.group import ShareGroup
from kcore.group.share.heartbeat import JOIN, Stage, heartbeat
from kcore.group.share.member import CurrentAssignment, MemberMetadata, ShareMember
from kcore.group.share.services import ShareSettings
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import Pending, gather
from kcore.runtime.sliced import SLICE_COST_US
from kcore_ext.group.share_heartbeat import ShareHeartbeatFastPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work

MAX_MEMBER_ID: Final = 36
"""Maximum number of characters of a member id: the length of a UUID with dashes."""
LEAVE: Final = -1


class ShareGroupHeartbeatApi(GroupApi[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]):
    """Handler of ShareGroupHeartbeat requests.

    The client needs READ on the group and DESCRIBE on the topics that it names. The fast path serves an unchanged
    member while its group has no work to do, such as computing a new target. The time of the fast path does not depend
    on the size of the group.

    Args:
        shards: the group shards.
        services: the settings of groups, and the setting that enables share groups.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.SHARE_GROUP_HEARTBEAT
    request_type = ShareGroupHeartbeatRequest
    response_type = ShareGroupHeartbeatResponse
    versions = (1, 1)
    caches_requests = True
    differs: ClassVar[str] = (
        f"A member may subscribe to {MAX_SUBSCRIBED_TOPICS} topics; a request with more is refused with "
        "INVALID_REQUEST. After a restart, the next heartbeat repeats the initialization of each share partition that "
        "the share coordinator has not confirmed."
    )

    __slots__ = ("_services", "fast", "fast_path")

    def __init__(
        self, shards: Shards[GroupShard], services: ShareGroupServices, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services
        self.fast_path = ShareHeartbeatFastPath(
            self,
            shards,
            authorizer,
            READ_GROUP,
            ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            services=services,
            request=ShareGroupHeartbeatRequest,
            response=ShareGroupHeartbeatResponse,
            context=RequestContext,
            settings=ShareSettings,
            machine=GroupShard,
            group=ShareGroup,
            member=ShareMember,
            metadata=MemberMetadata,
            current=CurrentAssignment,
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: ShareGroupHeartbeatRequest) -> Any:
        """Authorizes the client, validates the fields of the request, and runs it in the group's shard."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        if self._authorizer is not None and not self.allowed(context, Operation.READ, request.group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not 0 < len(request.member_id) <= MAX_MEMBER_ID:
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        names = request.subscribed_topic_names or ()
        if len(names) > MAX_SUBSCRIBED_TOPICS:
            message = f"a member may subscribe to at most {MAX_SUBSCRIBED_TOPICS} topics"
            return self.error(context, request, ErrorCode.INVALID_REQUEST, message)
        slices = self._shards.slices
        if len(names) > INLINE_TOPICS and slices is not None and slices.requests.enabled:

            def join(responses: list[Any]) -> Any:
                return gather(self, context, request, responses, last_response)

            return slices.requests.run(self, context, request, self._long(context, request, names), join)
        if not self._may_describe(context, dict.fromkeys(names)):
            return self.error(context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        reason = invalid(request)
        if reason is not None:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, reason)
        return self._shards.of(request.group_id).run(self, context, request)

    def _long(self, context: RequestContext, request: ShareGroupHeartbeatRequest, names: Sequence[str]) -> Work:
        """Serves a heartbeat with many topics in slices; returns the responses of all decisions.

        The first slices check the permissions on the topics and compute their hashes. Three decisions follow: they
        update the member, compute its target, and start the initialization of its partitions. Before the second
        decision, a slice looks up all topics of the group.
        """
        names = list(dict.fromkeys(names))
        shard = self._shards.of(request.group_id)
        for first in range(0, len(names), NAMES_PER_STEP):
            some = names[first : first + NAMES_PER_STEP]
            if not self._may_describe(context, some):
                return [self.error(context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
            shard.machine.consumer.metadata.hash_of(some)  # the decision then finds the hash of each topic in the cache
            yield NAME_COST_US * len(some)
        reason = invalid(request)
        if reason is not None:
            return [self.error(context, request, ErrorCode.INVALID_REQUEST, reason)]
        responses: list[Any] = []
        for part in SEPARATE_PARTS:
            group = shard.machine.groups.get(request.group_id)
            if part is HeartbeatPart.TARGET and isinstance(group, ShareGroup):
                target.prepare(group)
                yield SLICE_COST_US
            responses.append(shard.run(self, context, Stage(request, part)))
            if not isinstance(responses[-1], Pending) and responses[-1].error_code:
                break
            yield SLICE_COST_US
        return responses

    def _may_describe(self, context: RequestContext, names: Iterable[str]) -> bool:
        authorizer = self._authorizer
        return authorizer is None or all(
            authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names
        )

    def decide(self, machine: GroupShard, context: RequestContext, request: ShareGroupHeartbeatRequest | Stage) -> Any:
        """Runs `kcore.group.share.heartbeat.heartbeat` for the whole heartbeat or for one `Stage` of it."""
        return heartbeat(machine, context, request if isinstance(request, Stage) else Stage(request))

    def error(
        self,
        context: RequestContext,
        request: ShareGroupHeartbeatRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> ShareGroupHeartbeatResponse:
        """Returns a response with the code and the message."""
        return ShareGroupHeartbeatResponse(error_code=code, error_message=message)


def invalid(request: ShareGroupHeartbeatRequest) -> str | None:
    """Validates the fields of a request, in Kafka's order; returns the reason for refusing it, or None."""
    if is_blank(request.member_id):
        return "MemberId can't be empty."
    if is_blank(request.group_id):
        return "GroupId can't be empty."
    if request.rack_id is not None and is_blank(request.rack_id):
        return "RackId can't be empty."
    epoch = request.member_epoch
    if epoch == JOIN and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    if epoch < LEAVE:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -1."
    return None
