"""The common part of ShareFetch and ShareAcknowledge: checks of the request, and its acknowledgements (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kcore.broker.share.sessions import SessionKey, TopicIdPartition
from kcore.process_logging import limited_logger
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import Api
from kcore.runtime.failed_requests import log_failed_request
from kcore_ext.broker.share.acknowledgements import valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import TopicPartitions
    from kcore.broker.share.acknowledgements import AcknowledgementBatch
    from kcore.broker.share.share_partitions import SharePartitions
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import Broker, ClusterView
    from kcore.runtime.sliced import Work

logger = limited_logger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_MEMBER_ID: Final = 36
"""The maximum length of a member id: the length of a UUID as text."""

MAX_PARTITIONS: Final = 10_000
"""Maximum number of partitions of one request, and of one session. A partition takes about 5 µs."""

FEW_PARTITIONS: Final = 200
"""Maximum number of partitions in a request whose acknowledgements are handled in one step, without slices."""

CHECK_COST_US: Final = 5
"""The cost of a partition whose acknowledgements are refused, in microseconds."""
ACKNOWLEDGE_COST_US: Final = 50
"""The cost of the acknowledgements of a partition and of their record, in microseconds."""

LEADER_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors for which a response also names the partition's leader."""


class Acknowledged(NamedTuple):
    """The result of the acknowledgements of one partition.

    Attributes:
        error: the error code.
        message: the error message; None if the response needs no message.
    """

    error: ErrorCode
    message: str | None


SUCCESS: Final = Acknowledged(ErrorCode.NONE, None)

Acknowledgements = Sequence[tuple[TopicIdPartition, "Sequence[AcknowledgementBatch]"]]
Results = dict[TopicIdPartition, Acknowledged]


class _Receiver:
    """The receiver of the result of one partition's acknowledgements.

    If an exception interrupts the acknowledgement, the receiver is never called. Its destructor then stores an error as
    the result, because otherwise the client would wait forever.

    Args:
        key: the partition.
        results: the results by partition, to which the receiver adds its result.
        arrived: called after the result was added.
    """

    __slots__ = ("_arrived", "_key", "_results", "_waits")

    def __init__(self, key: TopicIdPartition, results: Results, arrived: Callable[[], None]) -> None:
        self._key = key
        self._results = results
        self._arrived = arrived
        self._waits = True

    def __call__(self, error: ErrorCode) -> None:
        self._waits = False
        self._results[self._key] = Acknowledged(error, error.message) if error else SUCCESS
        self._arrived()

    def __del__(self) -> None:
        if self._waits:
            self(ErrorCode.UNKNOWN_SERVER_ERROR)


def find_partition(topic: TopicPartitions, index: int) -> Partition | ErrorCode:
    """Returns a partition of a topic, or the error for clients."""
    partition = topic.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if partition.recovering else partition


class ShareApi(Api[Request, Response]):
    """The base class of the handlers of ShareFetch and ShareAcknowledge.

    Args:
        share_partitions: the share partitions of the node.
        enabled: returns True if share groups are enabled.
        cluster: this node's endpoints, for responses that name the leader.
        authorizer: decides about READ of the group and of each topic; None allows all.
    """

    __slots__ = ("_authorizer", "_cluster", "_enabled", "share_partitions")

    storage_error = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(
        self,
        share_partitions: SharePartitions,
        enabled: Callable[[], bool],
        *,
        cluster: ClusterView | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.share_partitions = share_partitions
        self._enabled = enabled
        self._cluster = cluster
        self._authorizer = authorizer

    # ---- checks

    def refusal(self, context: RequestContext, request: Any) -> ErrorCode:
        """Returns the first error of the whole request, in Kafka's order, or NONE."""
        if not self._enabled():
            return ErrorCode.UNSUPPORTED_VERSION
        group_id, member_id = request.group_id, request.member_id
        if group_id is None:
            return ErrorCode.INVALID_REQUEST
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.allowed(context, Operation.READ, ResourceType.GROUP, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not member_id or len(member_id) > MAX_MEMBER_ID:
            return ErrorCode.INVALID_REQUEST
        if sum([len(topic.partitions) for topic in request.topics]) > MAX_PARTITIONS:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def find(self, context: RequestContext, key: TopicIdPartition) -> Partition | ErrorCode:
        """Returns a partition, or the error code for the client if the client cannot use it."""
        topic = self.find_topic(context, key.topic_id)
        return topic if isinstance(topic, ErrorCode) else find_partition(topic, key.partition)

    def find_topic(self, context: RequestContext, topic_id: bytes) -> TopicPartitions | ErrorCode:
        """Returns the partitions of a topic, or the error code for the client if the client cannot use the topic."""
        topic = self.share_partitions.partitions.ids.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.allowed(context, Operation.READ, ResourceType.TOPIC, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return topic

    # ---- acknowledgements

    def acknowledge(
        self,
        context: RequestContext,
        session: SessionKey,
        acknowledgements: Acknowledgements,
        renews: bool,
        then: Callable[[Results], None],
    ) -> Work:
        """Runs the acknowledgements of a request, one partition in each step.

        Args:
            context: the client and the API version of the request.
            session: the group and the member.
            acknowledgements: the batches of each partition.
            renews: True if the request is marked to renew locks (KIP-1222).
            then: called with the results, in the order of the request, when all of them are durable.
        """
        results: Results = dict.fromkeys((key for key, _ in acknowledgements), SUCCESS)
        outstanding = 1

        def arrived() -> None:
            nonlocal outstanding
            outstanding -= 1
            if not outstanding:
                then(results)

        for key, batches in acknowledgements:
            refused = self._refused(context, session, key, batches, renews)
            if refused is not None:
                results[key] = refused
                yield CHECK_COST_US
            elif batches:
                share_partition = self.share_partitions.get(session.group_id, key)
                assert share_partition is not None, "checked just now"
                outstanding += 1
                share_partition.acknowledge_records(session.member_id, batches, _Receiver(key, results, arrived))
                yield ACKNOWLEDGE_COST_US
        arrived()

    def _refused(
        self,
        context: RequestContext,
        session: SessionKey,
        key: TopicIdPartition,
        batches: Sequence[AcknowledgementBatch],
        renews: bool,
    ) -> Acknowledged | None:
        """Checks the acknowledgements of a partition. Returns the result with the error; None if the checks pass."""
        if key.topic_id not in self.share_partitions.partitions.ids:
            return Acknowledged(ErrorCode.UNKNOWN_TOPIC_ID, None)
        if not valid(batches, context.api_version, renews):
            return Acknowledged(ErrorCode.INVALID_REQUEST, None)
        partition = self.find(context, key)
        if isinstance(partition, ErrorCode):
            return Acknowledged(partition, None)
        if batches and self.share_partitions.get(session.group_id, key) is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return Acknowledged(error, error.message)
        return None

    # ---- responses

    def failed_late(self, context: RequestContext, error: Exception, response: Response) -> Response:
        """Logs an internal error after durable acknowledgements; returns `response`. It does not raise.

        Args:
            context: the client and the API version of the request.
            error: the internal error.
            response: the response of the request.
        """
        log_failed_request(
            logger,
            error,
            "%s failed after the acknowledgements of the request were stored; the client gets UNKNOWN_SERVER_ERROR%s",
            self,
            context,
        )
        return response

    def lock_ms(self, group_id: str) -> int:
        """Returns the lock duration of a group. Clients need this time to renew locks before they expire."""
        return self.share_partitions.settings_of(group_id).lock_ms

    def leader_endpoint(self, context: RequestContext, errors: Iterable[int]) -> Broker | None:
        """Returns this node's endpoint if one of the errors indicates that another node may lead the partition."""
        if self._cluster is None or LEADER_ERRORS.isdisjoint(errors):
            return None
        return self._cluster.broker(self._cluster.node_id, context.listener)
