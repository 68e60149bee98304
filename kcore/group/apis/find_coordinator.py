"""FindCoordinator (API key 10), v0-6: finds the node that coordinates a group, a transactional id or a share partition.

v1 adds the key type, v4 several keys at once (KIP-699), v6 share partitions (KIP-932). The request creates no group.
Any text is a valid key, including "".
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.protocol.uuids import from_text, to_text
from kcore.runtime.api import Api
from kcore.runtime.partitioner import partition_for
from kcore.runtime.pending import gather_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import Broker, ClusterView
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicImage

SEVERAL_KEYS_SINCE: Final = 4
SHARE_SINCE: Final = 6
NO_NODE: Final = -1
_SUCCESS_TEXT: Final = "NONE"  # Kafka's error message of a success, up to version 3
_INT32 = re.compile(r"[+-]?[0-9]+")


class KeyType(IntEnum):
    """The kind of object that a key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


TOPICS: Final[dict[int, str]] = {
    KeyType.GROUP: CONSUMER_OFFSETS,
    KeyType.TRANSACTION: TRANSACTION_STATE,
    KeyType.SHARE: SHARE_GROUP_STATE,
}
"""Key type -> the internal topic that stores the state of objects with such keys."""


def share_key(text: str) -> str | None:
    """Returns the canonical form of a share key `group:topic id:partition`, None if it is malformed.

    The group may contain colons; the topic id is a UUID in base64.
    """
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0].strip() or _INT32.fullmatch(parts[2]) is None:
        return None
    partition = int(parts[2])
    if not -(1 << 31) <= partition < 1 << 31:
        return None
    try:
        topic_id = from_text(parts[1])
    except ValueError:
        return None
    return f"{parts[0]}:{to_text(topic_id)}:{partition}"


class FindCoordinatorApi(Api[FindCoordinatorRequest, FindCoordinatorResponse]):
    """Handler of FindCoordinator requests.

    Args:
        topics: the cluster's topics. The number of partitions of an internal topic determines the partition of a key.
        cluster: the leaders of partitions, and the nodes' addresses.
        make_topic: starts creating a missing internal topic, by name; None if these topics always exist.
        authorizer: checks DESCRIBE on groups and transactional ids; None allows all.
        slices: runs a request with many keys in slices. If None, every request runs without slices.
    """

    key = ApiKey.FIND_COORDINATOR
    request_type = FindCoordinatorRequest
    response_type = FindCoordinatorResponse
    versions = (0, 6)
    caches_requests = True

    __slots__ = ("_authorizer", "_cluster", "_make_topic", "_slices", "_topics")

    def __init__(
        self,
        topics: TopicImage,
        cluster: ClusterView,
        make_topic: Callable[[str], object] | None = None,
        authorizer: Authorizer | None = None,
        slices: Slices | None = None,
    ) -> None:
        self._slices = slices
        self._topics = topics
        self._cluster = cluster
        self._make_topic = make_topic
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> Any:
        """Finds the coordinator of each key; an error affects only its key."""
        if context.api_version >= SEVERAL_KEYS_SINCE:
            keys = request.coordinator_keys
            if len(keys) == 1:
                return FindCoordinatorResponse(coordinators=[self._find(context, request.key_type, keys[0])])
            key_type = request.key_type
            return gather_each(
                self, context, request, keys, lambda key: self._find(context, key_type, key), _several, self._slices
            )
        return _single(self._find(context, request.key_type, request.key))

    def error(
        self, context: RequestContext, request: FindCoordinatorRequest, code: ErrorCode, message: str | None = None
    ) -> FindCoordinatorResponse:
        """Returns a response with the code for every key."""
        if context.api_version >= SEVERAL_KEYS_SINCE:
            return FindCoordinatorResponse(
                coordinators=[_refused(key, code, message or code.message) for key in request.coordinator_keys]
            )
        return _single(_refused(request.key, code, message or code.message))

    def _find(self, context: RequestContext, key_type: int, key: str) -> Coordinator:
        several = context.api_version >= SEVERAL_KEYS_SINCE
        code = self._validate(context, key_type, key)
        canonical: str | None = key
        if code is ErrorCode.NONE and key_type == KeyType.SHARE:
            canonical = share_key(key)
        if canonical is None:
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE:
            silent = several and key_type == KeyType.SHARE and code is ErrorCode.INVALID_REQUEST  # as Kafka does
            return _refused(key, code, "" if silent else code.message)
        broker = self._broker(TOPICS[key_type], canonical or "", context.listener)
        if broker is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return _refused(key, code, code.message)
        return Coordinator(
            key=key,
            node_id=broker.node_id,
            host=broker.host,
            port=broker.port,
            error_message="" if several else _SUCCESS_TEXT,
        )

    def _broker(self, topic: str, key: str, listener: str) -> Broker | None:
        """Returns the leader of the key's partition, with its address for a listener; None if there is no leader
        now."""
        info = self._topics.by_name(topic)
        if info is None:
            if self._make_topic is not None:
                self._make_topic(topic)  # the client retries
            return None
        leader = self._cluster.leader(topic, partition_for(key, info.partitions))
        return None if leader is None else self._cluster.broker(leader.node_id, listener)

    def _validate(self, context: RequestContext, key_type: int, key: str) -> ErrorCode:
        """Returns NONE, or the error of a key that is refused without a lookup."""
        if key_type not in TOPICS or (key_type == KeyType.SHARE and context.api_version < SHARE_SINCE):
            return ErrorCode.INVALID_REQUEST
        authorizer = self._authorizer
        if authorizer is None:
            return ErrorCode.NONE
        if key_type == KeyType.GROUP:
            if not authorizer.allowed(context, Operation.DESCRIBE, ResourceType.GROUP, key):
                return ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif key_type == KeyType.TRANSACTION:
            if not authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not authorizer.allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.NONE


def _several(coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=coordinators)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message)


def _single(coordinators: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=coordinators.error_code,
        error_message=coordinators.error_message,
        node_id=coordinators.node_id,
        host=coordinators.host,
        port=coordinators.port,
    )
