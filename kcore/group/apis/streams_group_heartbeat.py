"""StreamsGroupHeartbeat (API key 88), v0: joins, keeps alive, reconciles and leaves a streams group (KIP-1071)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kcore.group.apis.base import READ_GROUP, GroupApi
from kcore.group.heartbeat_parts import SEPARATE_PARTS
from kcore.group.shard import GroupShard
from kcore.group.streams.configure import LISTED_TOPICS, MAX_TASKS, UNDECIDED, Status, shortened, summary
from kcore.group.streams.endpoints import MAX_PARTITIONS as MAX_ENDPOINT_PARTITIONS
from kcore.group.streams.endpoints import MAX_TOPICS as MAX_ENDPOINT_TOPICS
from kcore.group.streams.group import StreamsGroup
from kcore.group.streams.heartbeat import JOIN, UNCHANGED, Decision, Stage, heartbeat
from kcore.group.streams.member import MemberMetadata, StreamsMember
from kcore.group.streams.preparation import prepare
from kcore.group.streams.services import StreamsSettings
from kcore.group.streams.target import INLINE_MEMBERS
from kcore.group.streams.topology import named_topics
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.protocol.messages.streams_group_heartbeat import Status as ResponseStatus
from kcore.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kcore.runtime.api import RequestContext
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import Pending, gather
from kcore.runtime.sliced import SLICE_COST_US, step
from kcore_ext.group.streams_heartbeat import StreamsHeartbeatFastPath

if TYPE_CHECKING:
    from kcore.group.streams.configure import InternalTopic
    from kcore.group.streams.services import StreamsServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.protocol.messages.streams_group_heartbeat import Topology
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work

LEAVE: Final = -1
MAX_TOPICS: Final = 20_000
"""Maximum number of topic names in one topology.

The node spends about 10 µs on each name, and serves no other request meanwhile.
"""
LONG_TOPOLOGY: Final = 1_000
"""Maximum number of subtopologies, topic names or client tags in a heartbeat that runs without slices.

A longer heartbeat runs in slices if the driver runs an event loop.
"""
LONG_TASKS: Final = 5_000
"""Maximum number of partitions of the source topics in a join that runs without slices.

A join with more partitions runs in slices if the driver runs an event loop.
"""
NAMES_PER_STEP: Final = 200
NAME_COST_US: Final = 10
"""The cost of checking one topic name, in microseconds."""
REMEMBERED_HEARTBEATS: Final = 2
"""Number of heartbeat intervals for which responses report a failure to create an internal topic, as in Kafka."""


class StreamsGroupHeartbeatApi(GroupApi[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse]):
    """Handler of StreamsGroupHeartbeat requests.

    The client needs READ on the group, DESCRIBE on all topics of its topology, and CREATE on internal topics that must
    be created. The fast path serves a member if its last heartbeat made no change and the response had no status.

    Args:
        shards: the group shards.
        services: the assignor, the settings of groups, the creator of topics, and the setting that enables the
            protocol.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.STREAMS_GROUP_HEARTBEAT
    request_type = StreamsGroupHeartbeatRequest
    response_type = StreamsGroupHeartbeatResponse
    versions = (0, 0)
    caches_requests = True
    differs: ClassVar[str] = (
        f"A topology with more than {MAX_TOPICS} topic names is refused with INVALID_REQUEST. If a topology has more "
        f"than {MAX_TASKS} tasks, the status is INCORRECTLY_PARTITIONED_TOPICS. While source topics are missing, a "
        "member with an endpoint gets the endpoints of all members, without partitions; in this case, Kafka responds "
        f"with UNKNOWN_SERVER_ERROR. The endpoints in a response have at most {MAX_ENDPOINT_TOPICS} topics and "
        f"{MAX_ENDPOINT_PARTITIONS} partitions together; above these limits, the response omits the endpoints of the "
        f"members that joined last. If a group has more than {INLINE_MEMBERS} members, a later heartbeat returns the "
        "target assignment; until then, the status is ASSIGNMENT_DELAYED."
    )

    __slots__ = ("_services", "fast", "fast_path")

    def __init__(
        self, shards: Shards[GroupShard], services: StreamsServices, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services
        self.fast_path = StreamsHeartbeatFastPath(
            self,
            shards,
            authorizer,
            READ_GROUP,
            StreamsGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            services=services,
            request=StreamsGroupHeartbeatRequest,
            response=StreamsGroupHeartbeatResponse,
            context=RequestContext,
            settings=StreamsSettings,
            machine=GroupShard,
            group=StreamsGroup,
            member=StreamsMember,
            metadata=MemberMetadata,
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> Any:
        """Authorizes the client, validates the fields of the request, and runs it in the group's shard."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        if not self.allowed(context, Operation.READ, request.group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        slices = self._shards.slices
        if request.topology is not None:
            if slices is not None and slices.requests.enabled and self._is_long(request, request.topology):

                def join(responses: list[Any]) -> Any:
                    return gather(self, context, request, responses, _last_response)

                return slices.requests.run(self, context, request, self._long(context, request), join)
            code, message = step(self._check_topics(context, request.topology), -1)[1]
            if code:
                return self.error(context, request, code, message)
        code, message = invalid(request)
        if code:
            return self.error(context, request, code, message)
        return self._shards.of(request.group_id).run(self, context, request)

    def _long(self, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> Work:
        """Serves a heartbeat with a long topology in slices; returns the responses of all decisions.

        The first slices check the topics and prepare the topology. Three decisions follow: they update the member,
        compute the target, and move the member towards the target.
        """
        assert request.topology is not None, "checked by `handle`"
        code, message = yield from self._check_topics(context, request.topology)
        if not code:
            code, message = invalid(request)
        if code:
            return [self.error(context, request, code, message)]
        yield SLICE_COST_US
        prepared = yield from prepare(request.topology, self._services.metadata)
        shard = self._shards.of(request.group_id)
        responses: list[Any] = []
        for part in SEPARATE_PARTS:
            responses.append(shard.run(self, context, Stage(request, prepared, part)))
            if not isinstance(responses[-1], Pending) and responses[-1].error_code:
                break
            yield SLICE_COST_US
        return responses

    def _is_long(self, request: StreamsGroupHeartbeatRequest, topology: Topology) -> bool:
        """Returns True if a join has so many subtopologies, names, client tags or tasks that it runs in slices."""
        if len(topology.subtopologies) > LONG_TOPOLOGY or len(request.client_tags or ()) > LONG_TOPOLOGY:
            return True
        if sum(1 for _ in islice(named_topics(topology), LONG_TOPOLOGY + 1)) > LONG_TOPOLOGY:
            return True
        by_name = self._services.metadata.topics.by_name
        topics = [by_name(name) for part in topology.subtopologies for name in part.source_topics]
        return sum(topic.partitions for topic in topics if topic is not None) > LONG_TASKS

    def _check_topics(self, context: RequestContext, topology: Topology) -> Work:
        """Checks that all topic names of a topology are valid and that the client may DESCRIBE the topics.

        Runs in steps, and yields the cost of each step in microseconds.

        Returns:
            A pair: the error code and the error message. The code is NONE if all topics pass the checks.
        """
        names = list(dict.fromkeys(islice(named_topics(topology), MAX_TOPICS + 1)))
        if len(names) > MAX_TOPICS:
            return ErrorCode.INVALID_REQUEST, f"the topology has more than {MAX_TOPICS} topic names"
        for first in range(0, len(names), NAMES_PER_STEP):
            some = names[first : first + NAMES_PER_STEP]
            for name in some:
                fault = self._services.topic_creator.name_fault(name)
                if fault is not None:
                    return ErrorCode.STREAMS_INVALID_TOPOLOGY, fault
            yield NAME_COST_US * len(some)
        authorizer = self._authorizer
        if authorizer is not None:
            for first in range(0, len(names), NAMES_PER_STEP):
                some = names[first : first + NAMES_PER_STEP]
                for name in some:
                    if not authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
                        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
                yield NAME_COST_US * len(some)
        return NO_ERROR, None

    def decide(
        self, machine: GroupShard, context: RequestContext, request: StreamsGroupHeartbeatRequest | Stage
    ) -> Any:
        """Runs `kcore.group.streams.heartbeat.heartbeat` for the whole heartbeat or for one `Stage` of it.

        Also starts the creation of missing internal topics.
        """
        stage = request if isinstance(request, Stage) else Stage(request)
        decision = heartbeat(machine, context, stage)
        if not isinstance(decision, Decision):
            return decision
        if decision.missing and stage.part.assigns:
            self._create(context, decision.missing, decision.response)
        return Outcome(decision.records, decision.response) if decision.records else decision.response

    def _create(
        self, context: RequestContext, missing: dict[str, InternalTopic], response: StreamsGroupHeartbeatResponse
    ) -> None:
        """Starts the creation of internal topics. If they cannot be created, adds the reason to the response."""
        refused = self._not_creatable(context, missing)
        if refused:
            _extend(response, f"; the client may not CREATE the topics {summary(refused)}")
            return
        creator = self._services.topic_creator
        failures = creator.failures(missing)
        creator.create(context, missing.values(), REMEMBERED_HEARTBEATS * response.heartbeat_interval_ms)
        if failures:
            shown = [f"{name} ({reason})" for name, reason in islice(failures.items(), LISTED_TOPICS)]
            _extend(response, f"; their creation failed: {', '.join(shown)}")

    def _not_creatable(self, context: RequestContext, missing: dict[str, InternalTopic]) -> list[str]:
        authorizer = self._authorizer
        if authorizer is None or authorizer.allowed(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            return []
        return [name for name in missing if not authorizer.allowed(context, Operation.CREATE, ResourceType.TOPIC, name)]

    def error(
        self,
        context: RequestContext,
        request: StreamsGroupHeartbeatRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> StreamsGroupHeartbeatResponse:
        """Returns a response with the code and the message, without a member id."""
        return StreamsGroupHeartbeatResponse(
            error_code=code, error_message=None if message is None else shortened(message)
        )


def _last_response(responses: list[StreamsGroupHeartbeatResponse]) -> StreamsGroupHeartbeatResponse:
    """Returns the first error among the responses of the decisions, else the last response."""
    return next((response for response in responses if response.error_code), responses[-1])


def _extend(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    """Appends text to the status MISSING_INTERNAL_TOPICS of the response."""
    code = Status.MISSING_INTERNAL_TOPICS.value
    response.status = [
        ResponseStatus(status_code=code, status_detail=shortened(status.status_detail + text))
        if status.status_code == code
        else status
        for status in response.status or ()
    ]


def invalid(request: StreamsGroupHeartbeatRequest) -> tuple[ErrorCode, str | None]:
    """Validates the fields of a request, in Kafka's order; returns the error and its message, or NONE."""
    reason = _unsupported(request) or _incomplete(request)
    if reason is not None:
        return ErrorCode.INVALID_REQUEST, reason
    epoch = request.member_epoch
    if epoch == JOIN:
        reason = _invalid_join(request)
        if reason is not None:
            return ErrorCode.INVALID_REQUEST, reason
        assert request.topology is not None, "checked by `_invalid_join`"
        for part in request.topology.subtopologies:
            for topic in part.state_changelog_topics:
                if topic.partitions != UNDECIDED:
                    message = f"the coordinator decides the partition count of the changelog topic {topic.name}"
                    return ErrorCode.STREAMS_INVALID_TOPOLOGY, message
    elif epoch < LEAVE:
        return ErrorCode.INVALID_REQUEST, f"MemberEpoch is {epoch}, but must be at least {LEAVE}."
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(entries is None for entries in lists) and any(entries is not None for entries in lists):
        return ErrorCode.INVALID_REQUEST, "ActiveTasks, StandbyTasks and WarmupTasks must be null or set together."
    if epoch != JOIN and request.topology is not None:
        return ErrorCode.INVALID_REQUEST, "Topology can only be sent when (re-)joining."
    return NO_ERROR, None


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Returns the error message for a request that Kafka 4.3 does not support, although KIP-1071 defines it.

    Returns None for a supported request.
    """
    if request.instance_id is not None:
        return "Static membership is not supported."
    if request.task_offsets is not None:
        return "TaskOffsets are not supported."
    if request.task_end_offsets is not None:
        return "TaskEndOffsets are not supported."
    if request.warmup_tasks:
        return "WarmupTasks are not supported."
    if request.topology is not None and any(part.source_topic_regex for part in request.topology.subtopologies):
        return "Regular expressions of source topics are not supported."
    return None


def _incomplete(request: StreamsGroupHeartbeatRequest) -> str | None:
    if not request.member_id.strip():
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    return None


def _invalid_join(request: StreamsGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == UNCHANGED:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.active_tasks is None or len(request.active_tasks):
        return "ActiveTasks must be empty when (re-)joining."
    if request.standby_tasks is None or len(request.standby_tasks):
        return "StandbyTasks must be empty when (re-)joining."
    if request.warmup_tasks is None or len(request.warmup_tasks):
        return "WarmupTasks must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    return None
