"""Rules that find the broker of a request: a group's or transaction's coordinator, partition leaders, or any broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.topic_partition import TopicPartition

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""FindCoordinator's key types."""


class Route(NamedTuple):
    """The broker that serves a request.

    Attributes:
        coordinator: key type and key of the coordinator; None: no coordinator serves the request.
        partitions: the partitions whose leader serves the request.
        controller: True if the controller serves the request.
    """

    coordinator: tuple[int, str] | None = None
    partitions: tuple[TopicPartition, ...] = ()
    controller: bool = False


ANY: Final = Route()
CONTROLLER: Final = Route(controller=True)


def _group(request: Any) -> Route:
    return Route((GROUP, request.group_id))


def _first_group(attribute: str) -> Callable[[Any], Route]:
    def route(request: Any) -> Route:
        listed = getattr(request, attribute)
        if not listed:
            return ANY
        return Route((GROUP, listed[0] if isinstance(listed[0], str) else listed[0].group_id))

    return route


def _offset_fetch(request: Any) -> Route:
    return Route((GROUP, request.groups[0].group_id if request.groups else request.group_id))


def _transaction(request: Any) -> Route:
    return ANY if request.transactional_id is None else Route((TRANSACTION, request.transactional_id))


def _add_partitions(request: Any) -> Route:
    transactions = request.transactions
    key = transactions[0].transactional_id if transactions else request.v3_and_below_transactional_id
    return Route((TRANSACTION, key))


def _transactions(request: Any) -> Route:
    return Route((TRANSACTION, request.transactional_ids[0])) if request.transactional_ids else ANY


def _leaders(topics: str, name: str, partitions: str, number: str) -> Callable[[Any], Route]:
    def listed(request: Any) -> Iterable[TopicPartition]:
        for topic in getattr(request, topics):
            for partition in getattr(topic, partitions):
                yield TopicPartition(getattr(topic, name), getattr(partition, number) if number else partition)

    return lambda request: Route(partitions=tuple(listed(request)))


_ROUTES: Final[dict[int, Callable[[Any], Route]]] = {
    ApiKey.PRODUCE: _leaders("topic_data", "name", "partition_data", "index"),
    ApiKey.FETCH: _leaders("topics", "topic", "partitions", "partition"),
    ApiKey.LIST_OFFSETS: _leaders("topics", "name", "partitions", "partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _leaders("topics", "topic", "partitions", "partition"),
    ApiKey.DELETE_RECORDS: _leaders("topics", "name", "partitions", "partition_index"),
    ApiKey.DESCRIBE_PRODUCERS: _leaders("topics", "name", "partition_indexes", ""),
    ApiKey.OFFSET_COMMIT: _group,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _group,
    ApiKey.TXN_OFFSET_COMMIT: _group,
    ApiKey.JOIN_GROUP: _group,
    ApiKey.SYNC_GROUP: _group,
    ApiKey.HEARTBEAT: _group,
    ApiKey.LEAVE_GROUP: _group,
    ApiKey.DESCRIBE_GROUPS: _first_group("groups"),
    ApiKey.DELETE_GROUPS: _first_group("groups_names"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _group,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _first_group("group_ids"),
    ApiKey.SHARE_GROUP_HEARTBEAT: _group,
    ApiKey.SHARE_GROUP_DESCRIBE: _first_group("group_ids"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _first_group("groups"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _group,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _group,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _group,
    ApiKey.STREAMS_GROUP_DESCRIBE: _first_group("group_ids"),
    ApiKey.INIT_PRODUCER_ID: _transaction,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _transaction,
    ApiKey.END_TXN: _transaction,
    ApiKey.DESCRIBE_TRANSACTIONS: _transactions,
    **dict.fromkeys(
        (
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.UPDATE_FEATURES,
        ),
        lambda request: CONTROLLER,
    ),
}


def route_of(request: Any) -> Route:
    """Returns the route of a request. For requests with topic ids, the caller must choose the broker."""
    route = _ROUTES.get(request.API_KEY)
    return ANY if route is None else route(request)
