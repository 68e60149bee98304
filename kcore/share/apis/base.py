"""The base class of the share coordinator's APIs. It splits each request into requests with one share partition."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from kcore.errors import KafkaError
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import Api
from kcore.runtime.pending import gather
from kcore.share.persister import share_key
from kcore.share.state import SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work
    from kcore.runtime.topics import TopicImage
    from kcore.share.coordinator import ShareCoordinator
    from kcore.share.shard import ShareShard
    from kcore_ext.share.states import ShareState

Request = TypeVar("Request")
Response = TypeVar("Response")

FEW_PARTITIONS: Final = 50
"""Maximum number of share partitions in a request that the node processes without a pause. The node processes longer
requests in slices.
"""

PARTITION_COST_US: Final = 40
"""Estimated time in microseconds to process one share partition of a request."""


class ShareStateApi(Api[Request, Response]):
    """The base class of an API of the share coordinator. Subclasses implement `decide_partition`.

    Args:
        coordinator: the node's share coordinator.
        topics: the cluster's topics.
        authorizer: decides about CLUSTER_ACTION on the cluster; None allows all requests.
    """

    __slots__ = ("_authorizer", "_coordinator", "_topics")

    request_type: ClassVar[Any]
    response_type: ClassVar[Any]
    topic_type: ClassVar[type]
    """The type of the entry for a topic in the request."""
    topic_result_type: ClassVar[type]
    """The type of the entry for a topic in the response."""
    partition_result_type: ClassVar[type]
    """The type of the result of one partition in the response."""
    small_responses: ClassVar[bool] = True
    needs_partitions: ClassVar[bool] = True
    """True if the response to a request with a topic without partitions is empty, as in Kafka."""

    def __init__(self, coordinator: ShareCoordinator, topics: TopicImage, authorizer: Authorizer | None = None) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._authorizer = authorizer

    @abstractmethod
    def decide_partition(self, machine: ShareShard, key: SharePartitionKey, data: Any) -> Any:
        """Processes the entry for one share partition in a request.

        Args:
            machine: the shard's state machine.
            key: the share partition.
            data: the partition's entry in the request.

        Returns:
            The partition's result, or an `Outcome` of records and the result.

        Raises:
            KafkaError: the partition's error.
        """

    def handle(self, context: RequestContext, request: Request) -> Any:
        """Authorizes the client, and processes each partition of the request."""
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return self.join(request, self._failures(request, code, code.message), keeps_empty_topics=True)
        return self.run(context, request)

    def run(self, context: RequestContext, request: Any) -> Any:
        """Processes each partition of an authorized request. Returns the response, or a `Pending` for it.

        The response to an invalid request is empty, as in Kafka.
        """
        if not request.group_id or (self.needs_partitions and not all(topic.partitions for topic in request.topics)):
            return self.response_type()
        parts = [(topic.topic_id, partition) for topic in request.topics for partition in topic.partitions]
        if len(parts) == 1:
            topic_id, partition = parts[0]
            if len(request.topics) > 1:
                request = self._part(request, topic_id, partition)
            return self._run_part(context, request, topic_id, partition.partition)

        def build(responses: list[Any]) -> Any:
            return self.join(request, [response.results[0].partitions[0] for response in responses])

        shards = self._coordinator.shards
        slices = None if shards is None else shards.slices
        if slices is None or len(parts) <= FEW_PARTITIONS:
            responses = [self._run_one(context, request, *part) for part in parts]
            return gather(self, context, request, responses, build)

        def work() -> Work:
            responses = []
            for part in parts:
                responses.append(self._run_one(context, request, *part))
                yield PARTITION_COST_US
            return responses

        return slices.requests.run(
            self, context, request, work(), lambda responses: gather(self, context, request, responses, build)
        )

    def _part(self, request: Any, topic_id: bytes, partition: Any) -> Any:
        """Returns a request reduced to one partition."""
        topic = self.topic_type(topic_id=topic_id, partitions=(partition,))
        return self.request_type(group_id=request.group_id, topics=(topic,))

    def _run_one(self, context: RequestContext, request: Any, topic_id: bytes, partition: Any) -> Any:
        return self._run_part(context, self._part(request, topic_id, partition), topic_id, partition.partition)

    def _run_part(self, context: RequestContext, request: Any, topic_id: bytes, partition: int) -> Any:
        """Runs a request with a single partition in the shard of the share partition's key."""
        try:
            shard = self._coordinator.of(share_key(request.group_id, topic_id, partition))
        except KafkaError as error:
            return self.error(context, request, error.code)
        return shard.run(self, context, request)

    def decide(self, machine: ShareShard, context: RequestContext, request: Any) -> Any:
        """Processes the only partition of the request."""
        (topic,) = [topic for topic in request.topics if topic.partitions]
        data = topic.partitions[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
        if data.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self.decide_partition(machine, key, data)

    def partition_exists(self, key: SharePartitionKey) -> bool:
        """Returns True if the topic exists and has the partition."""
        topic = self._topics.by_id(key.topic_id)
        return topic is not None and key.partition < topic.partitions

    def respond(self, key: SharePartitionKey, **result: Any) -> Response:
        """Returns a response for one partition.

        Args:
            key: the share partition.
            result: further fields of the partition's result.
        """
        partition = self.partition_result_type(partition=key.partition, **result)
        topic = self.topic_result_type(topic_id=key.topic_id, partitions=(partition,))
        response: Response = self.response_type(results=(topic,))
        return response

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Response:
        """Returns a response with the code for every partition."""
        response: Response = self.join(request, self._failures(request, code, message or code.message))
        return response

    def _failures(self, request: Any, code: ErrorCode, message: str) -> list[Any]:
        return [
            self.partition_result_type(partition=partition.partition, error_code=code, error_message=message)
            for topic in request.topics
            for partition in topic.partitions
        ]

    def reduced(self, request: Any, positions: Collection[int]) -> Any:
        """Returns the request with only some of its partitions, given by their positions in the request."""
        topics = []
        at = 0
        for topic in request.topics:
            partitions = [data for i, data in enumerate(topic.partitions, at) if i in positions]
            if partitions:
                topics.append(self.topic_type(topic_id=topic.topic_id, partitions=partitions))
            at += len(topic.partitions)
        return self.request_type(group_id=request.group_id, topics=topics)

    def join(self, request: Any, results: list[Any], *, keeps_empty_topics: bool = False) -> Any:
        """Returns the response with the results of all requested partitions, in the order of the request."""
        topics = []
        at = 0
        for topic in request.topics:
            end = at + len(topic.partitions)
            if end > at or keeps_empty_topics:
                topics.append(self.topic_result_type(topic_id=topic.topic_id, partitions=results[at:end]))
            at = end
        return self.response_type(results=topics)


def initialized(machine: ShareShard, key: SharePartitionKey) -> ShareState:
    """Returns the state of a share partition.

    Raises:
        KafkaError: INVALID_REQUEST if it was never initialized.
    """
    state = machine.states.get(key)
    if state is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the share partition is not initialized")
    return state


def check_leader_epoch(state: ShareState, leader_epoch: int) -> None:
    """Fences a former leader of the partition.

    Raises:
        KafkaError: FENCED_LEADER_EPOCH if a later leader has read the state.
    """
    if leader_epoch != -1 and leader_epoch < state.highest_leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


def check_state_epoch(state: ShareState, state_epoch: int) -> None:
    """Fences requests about an earlier initialization of the share partition.

    Raises:
        KafkaError: FENCED_STATE_EPOCH if the share partition was initialized with a later state epoch.
    """
    if state_epoch != -1 and state_epoch < state.highest_state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
