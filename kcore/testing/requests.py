"""The objects that a request is about: the group, the topics, the transactional id."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey, api_name, request_class
from kcore.protocol.error_codes import ErrorCode
from kcore.testing.arguments import check_type

_KEYS = {key.name.replace("_", "").lower(): key for key in ApiKey}
_TOPIC_LISTS = (
    "topics",
    "topic_data",
    "forgotten_topics_data",
    "topic_names",
    "topic_partitions",
    "subscribed_topic_names",
    "v3_and_below_topics",
)
_NESTED_TOPICS = ("groups", "transactions", "markers")
_TRANSACTIONAL_IDS = ("transactional_id", "v3_and_below_transactional_id")
_GROUP_KEY, _TRANSACTION_KEY = 0, 1  # types of keys in FindCoordinator
_TOPIC_RESOURCE, _GROUP_RESOURCE = 2, 32  # types of resources in requests about settings
_NAMED_IN = {
    "group": ("group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "resources"),
    "transactional_id": (*_TRANSACTIONAL_IDS, "transactions", "transactional_ids", "coordinator_keys"),
}
"""Attribute of a filter -> the fields of requests that name such an object."""
_TOPIC_NAMES = ("name", "topic", "topic_name")


def like(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the most similar known name, or "".

    Capitals, underscores and the ending "Error" make no difference: "NotCoordinatorError" is like "NOT_COORDINATOR".
    """
    simple = {_simple(each): each for each in known}
    near = difflib.get_close_matches(_simple(name), simple, n=1)
    return f"; did you mean {simple[near[0]]!r}?" if near else ""


def _simple(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("error").removesuffix("request")


def api_key(name: str) -> ApiKey:
    """Returns the key of an API, by its name in Kafka's documentation: "OffsetCommit".

    Raises:
        TypeError: the name is not a string.
        ValueError: no API has this name.
    """
    check_type("api", name, str)
    key = _KEYS.get(name.replace("_", "").lower())
    if key is None:
        hint = like(name, map(api_name, ApiKey)) or "; valid: names such as Produce, Fetch, JoinGroup, OffsetCommit"
        raise ValueError(f"{name!r} is not an API of Kafka{hint}")
    return key


def error_code(error: str | int | type[KafkaError]) -> ErrorCode:
    """Returns an error code by its name in Kafka ("NOT_COORDINATOR"), its number, or its class in `kcore.errors`.

    Raises:
        TypeError: the argument is neither a name, a number nor a class of error.
        ValueError: no error has this name or number.
    """
    if not isinstance(error, type):
        check_type("error", error, str, int)
    try:
        if isinstance(error, type):
            return ErrorCode(error.CODE if issubclass(error, KafkaError) else None)
        return ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (AttributeError, KeyError, ValueError):
        names = [code.name for code in ErrorCode]
        hint = (like(error, names) if isinstance(error, str) else "") or "; valid: names such as NOT_COORDINATOR"
        raise ValueError(f"{error!r} is not an error of Kafka{hint}") from None


def groups_of(request: Any) -> Iterator[str]:
    """Yields the groups that a request names."""
    group_id = getattr(request, "group_id", None)
    if isinstance(group_id, str):
        yield group_id
    for row in getattr(request, "groups", None) or ():
        yield row if isinstance(row, str) else row.group_id
    for field in ("groups_names", "group_ids"):
        yield from getattr(request, field, None) or ()
    yield from _coordinated(request, _GROUP_KEY)
    yield from _resources(request, _GROUP_RESOURCE)


def topics_of(request: Any, name_of: Callable[[bytes], str | None]) -> Iterator[str]:
    """Yields the topics that a request names; `name_of` maps topic ids to names."""
    for field in _TOPIC_LISTS:
        for row in getattr(request, field, None) or ():
            if isinstance(row, str):
                yield row
                continue
            name = next((value for n in _TOPIC_NAMES if (value := getattr(row, n, None))), None)
            if name is None:
                topic_id = getattr(row, "topic_id", None)
                name = name_of(topic_id) if topic_id else None
            if name is not None:
                yield name
    yield from _resources(request, _TOPIC_RESOURCE)
    for field in _NESTED_TOPICS:
        for row in getattr(request, field, None) or ():
            if not isinstance(row, str):
                yield from topics_of(row, name_of)


def transactional_ids_of(request: Any) -> Iterator[str]:
    """Yields the transactional ids that a request names."""
    for field in _TRANSACTIONAL_IDS:
        if isinstance(value := getattr(request, field, None), str):
            yield value
    for row in getattr(request, "transactions", None) or ():
        yield row.transactional_id
    yield from getattr(request, "transactional_ids", None) or ()
    yield from _coordinated(request, _TRANSACTION_KEY)


def _coordinated(request: Any, key_type: int) -> Iterator[str]:
    """Yields the keys of a FindCoordinator request for one type of key."""
    if getattr(request, "API_KEY", None) == ApiKey.FIND_COORDINATOR and request.key_type == key_type:
        yield from request.coordinator_keys or (request.key,)


def _resources(request: Any, resource_type: int) -> Iterator[str]:
    """Yields the names of the resources of one type in a request about settings."""
    for row in getattr(request, "resources", None) or ():
        if row.resource_type == resource_type:
            yield row.resource_name


def may_name(key: int, attribute: str) -> bool:
    """Returns True if requests of an API can name an object of a filter.

    Args:
        key: the API's key.
        attribute: an attribute of `Filter`: "group", "topic" or "transactional_id".
    """
    request = request_class(key)
    fields = {field.name: field for field in request.FIELDS}
    if attribute == "topic":
        nested = [fields[name].struct for name in _NESTED_TOPICS if name in fields]
        rows = [{field.name for field in struct.FIELDS} for struct in nested if struct is not None]
        return not fields.keys().isdisjoint({*_TOPIC_LISTS, "resources"}) or any(
            not row.isdisjoint(_TOPIC_LISTS) for row in rows
        )
    return not fields.keys().isdisjoint(_NAMED_IN[attribute])
