"""ConsumerGroupHeartbeat (API key 68), v0-1: joins, keeps alive, reconciles and leaves a consumer group (KIP-848).

v1 adds regular expressions and member ids that the client generates (KIP-1082).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kcore.group.apis.base import READ_GROUP, GroupApi, visible_topics
from kcore.group.apis.long_subscription import NAME_COST_US, NAMES_PER_STEP, decisions, last_response
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.heartbeat import JOIN, UNCHANGED, heartbeat, new_member_id
from kcore.group.consumer.member import STATIC_LEAVE_EPOCH, ConsumerMember, MemberMetadata
from kcore.group.consumer.services import INLINE_MEMBERS, ConsumerSettings
from kcore.group.consumer.subscriptions import Subscriptions
from kcore.group.consumer.target import INLINE_MATCHES, INLINE_TOPICS
from kcore.group.shard import GroupShard
from kcore.patterns import (
    MAX_CHARACTERS,
    MAX_NAMED_GROUPS,
    MAX_PROGRAM_BYTES,
    MAX_REPEATS,
    MAX_UNICODE_CLASSES,
)
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import gather
from kcore.runtime.shard_state import ShardState
from kcore_ext.group.heartbeat import ConsumerHeartbeatFastPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcore.group.consumer.services import ConsumerServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work

CLIENT_IDS_SINCE: Final = 1
LEAVE: Final = -1
MAX_SUBSCRIBED_TOPICS: Final = 20_000
"""Maximum number of names in one subscription.

The node spends about 10 µs on each name, and serves no other request meanwhile. A pattern costs less than many names.
"""


def is_blank(text: str | None) -> bool:
    """Returns True if a text is not null and has only white space."""
    return text is not None and not text.strip()


class ConsumerGroupHeartbeatApi(GroupApi[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]):
    """Handler of ConsumerGroupHeartbeat requests.

    The client needs READ on the group and DESCRIBE on the topics that it names. The fast path serves a reconciled
    member while its group has no work to do, such as computing a new target. The time of the fast path does not depend
    on the size of the group.

    Args:
        shards: the group shards.
        services: the assignors, the settings of groups, and the setting that enables the protocol.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    request_type = ConsumerGroupHeartbeatRequest
    response_type = ConsumerGroupHeartbeatResponse
    versions = (0, 1)
    caches_requests = True
    differs: ClassVar[str] = (
        f"A pattern has at most {MAX_CHARACTERS} characters, {MAX_UNICODE_CLASSES} Unicode classes, "
        f"{MAX_NAMED_GROUPS} named groups, and {MAX_PROGRAM_BYTES >> 20} MiB once compiled. The counts of its "
        f"repetitions (`{{n}}`, `{{m,n}}`) add up to at most {MAX_REPEATS}. kcore refuses "
        "other patterns with INVALID_REGULAR_EXPRESSION. If several assignors have equal votes, kcore uses the first "
        "of them in `group.consumer.assignors`. A later heartbeat returns the target assignment if the group has more "
        f"than {INLINE_MEMBERS} members, a member has more than {INLINE_TOPICS} topics, or the group's patterns "
        f"match more than {INLINE_MATCHES} topics. A member may subscribe to {MAX_SUBSCRIBED_TOPICS} topics by name; a "
        "request with more is refused with INVALID_REQUEST."
    )

    __slots__ = ("_services", "fast", "fast_path")

    def __init__(
        self, shards: Shards[GroupShard], services: ConsumerServices, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services
        self.fast_path = ConsumerHeartbeatFastPath(
            self,
            shards,
            authorizer,
            READ_GROUP,
            ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            services=services,
            request=ConsumerGroupHeartbeatRequest,
            response=ConsumerGroupHeartbeatResponse,
            context=RequestContext,
            settings=ConsumerSettings,
            machine=GroupShard,
            group=ConsumerGroup,
            subscriptions=Subscriptions,
            member=ConsumerMember,
            metadata=MemberMetadata,
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Any:
        """Authorizes the client, validates the fields of the request, and runs it in the group's shard."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        names = request.subscribed_topic_names
        if names is not None and len(names) > MAX_SUBSCRIBED_TOPICS:
            message = f"a member may subscribe to at most {MAX_SUBSCRIBED_TOPICS} topics by name"
            return self.error(context, request, ErrorCode.INVALID_REQUEST, message)
        slices = self._shards.slices
        if names is not None and len(names) > INLINE_TOPICS and slices is not None and slices.requests.enabled:

            def join(responses: list[Any]) -> Any:
                return gather(self, context, request, responses, last_response)

            return slices.requests.run(self, context, request, self._long(context, request, names), join)
        if not self._may_read(context, request):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not self._may_describe(context, dict.fromkeys(names or ())):
            return self.error(context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        refused = self._refused(context, request)
        return self._shards.of(request.group_id).run(self, context, request) if refused is None else refused

    def _long(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest, names: Sequence[str]) -> Work:
        """Serves a heartbeat with many topics in slices; returns the responses of all decisions.

        The first slices check the topics. The later slices run `long_subscription.decisions`.
        """
        if not self._may_read(context, request):
            return [self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)]
        names = list(dict.fromkeys(names))
        for first in range(0, len(names), NAMES_PER_STEP):
            some = names[first : first + NAMES_PER_STEP]
            if not self._may_describe(context, some):
                return [self.error(context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
            self._services.metadata.hash_of(some)  # the decision then finds the hash of each topic in the cache
            yield NAME_COST_US * len(some)
        refused = self._refused(context, request)
        if refused is not None:
            return [refused]
        shard = self._shards.of(request.group_id)
        if not request.member_id and shard.state is ShardState.ACTIVE:
            # the later decisions of this request use the same member id
            request.member_id = new_member_id(shard.machine)
        return (yield from decisions(self, shard, context, request))

    def _may_read(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> bool:
        return self.allowed(context, Operation.READ, request.group_id)

    def _may_describe(self, context: RequestContext, names: Iterable[str]) -> bool:
        authorizer = self._authorizer
        return authorizer is None or all(
            authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names
        )

    def _refused(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Validates the fields of an authorized request; returns the response that refuses it, or None."""
        reason = invalid(context.api_version, request)
        if reason is not None:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, reason)
        assignor = request.server_assignor
        if assignor is not None and assignor not in self._services.assignors:
            names = ", ".join(self._services.assignors)
            message = f"ServerAssignor {assignor} is not supported. Supported assignors: {names}."
            return self.error(context, request, ErrorCode.UNSUPPORTED_ASSIGNOR, message)
        return None

    def decide(self, machine: GroupShard, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Any:
        """Decides the heartbeat with `kcore.group.consumer.heartbeat`."""
        return heartbeat(machine, context, request, visible_topics(self._authorizer, context))

    def error(
        self,
        context: RequestContext,
        request: ConsumerGroupHeartbeatRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Returns a response with the code and the message."""
        return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def invalid(api_version: int, request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Validates the fields of a request, in Kafka's order; returns the reason for refusing it, or None."""
    epoch = request.member_epoch
    needs_id = api_version >= CLIENT_IDS_SINCE or epoch > JOIN or epoch == LEAVE
    if needs_id and is_blank(request.member_id):
        return "MemberId can't be empty."
    if is_blank(request.group_id):
        return "GroupId can't be empty."
    if request.instance_id is not None and is_blank(request.instance_id):
        return "InstanceId can't be empty."
    if request.rack_id is not None and is_blank(request.rack_id):
        return "RackId can't be empty."
    if epoch > JOIN:
        return None
    if epoch == JOIN:
        if request.rebalance_timeout_ms == UNCHANGED:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or len(request.topic_partitions):
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            return "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    return None
