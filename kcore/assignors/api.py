"""The assignor interface, lookup by name, and loading of user assignors.

The names are those of Kafka. A client's `partition.assignment.strategy` names assignors of the group type "classic". A
server's `group.consumer.assignors` names assignors of the type "consumer". The types "share" and "streams" have one
assignor each. `kcore.balanced` serves classic and consumer groups. A name of the form "package.module:Class" is
imported.
"""

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from kcore.errors import ConfigError, KcoreError
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.assign.model import Member, Topics
from kcore_ext.assign.result import GroupAssignment, MemberAssignment, assignment_of

__all__ = [
    "COOPERATIVE",
    "EAGER",
    "Assignor",
    "CheckedAssignor",
    "GroupAssignment",
    "GroupType",
    "Member",
    "MemberAssignment",
    "Members",
    "PartitionAssignorError",
    "TopicLike",
    "TopicPartition",
    "Topics",
    "assignment_of",
    "checked",
    "get",
    "load_all",
    "names",
    "validate",
]

EAGER: Literal["EAGER"] = "EAGER"
"""Name of the rebalance protocol in which a member revokes all its partitions before a rebalance."""
COOPERATIVE: Literal["COOPERATIVE"] = "COOPERATIVE"
"""Name of the rebalance protocol in which a member revokes only the partitions that move (KIP-429)."""

GroupType: TypeAlias = Literal["classic", "consumer", "share", "streams"]
Members: TypeAlias = Iterable[Member] | Mapping[str, Member]
TopicLike: TypeAlias = Topics | Mapping[str, int] | Mapping[bytes, int]


class PartitionAssignorError(KcoreError):
    """An assignor failed, or its result is invalid (Kafka's PartitionAssignorException)."""


@runtime_checkable
class Assignor(Protocol):
    """An algorithm that assigns the partitions of a group to its members.

    An implementation is a class whose constructor takes no arguments, with the attributes `name` and `assign`. It is
    pure: the same members, topics and previous assignment give the same result in every process.
    """

    @property
    def name(self) -> str:
        """The assignor's name in requests and settings."""

    def assign(
        self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None
    ) -> GroupAssignment | Mapping[str, Mapping[Any, Iterable[int]]]:
        """Assigns all partitions of the subscribed topics.

        Args:
            members: the members, in any order.
            topics: the topics that exist, with partition counts and optionally racks.
            previous: the previous assignment. None: the partitions that the members report as owned.

        Returns:
            Every member's partitions: a GroupAssignment, or any mapping member id -> topic -> partitions.
        """


_IMPORT_PATHS: dict[tuple[str, str], str] = {
    ("classic", "range"): "kcore.assignors.range:RangeAssignor",
    ("classic", "roundrobin"): "kcore.assignors.roundrobin:RoundRobinAssignor",
    ("classic", "sticky"): "kcore.assignors.sticky:StickyAssignor",
    ("classic", "cooperative-sticky"): "kcore.assignors.cooperative_sticky:CooperativeStickyAssignor",
    ("classic", "kcore.balanced"): "kcore.assignors.balanced:BalancedAssignor",
    ("consumer", "uniform"): "kcore.assignors.uniform:UniformAssignor",
    ("consumer", "range"): "kcore.assignors.server_range:ServerRangeAssignor",
    ("consumer", "kcore.balanced"): "kcore.assignors.balanced:BalancedAssignor",
    ("share", "simple"): "kcore.assignors.simple:SimpleAssignor",
    ("streams", "sticky"): "kcore.assignors.streams_sticky:StickyTaskAssignor",
}


_KAFKA_CLASSES: dict[str, str] = {
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
}
"""Mapping from the class name of each of Kafka's assignors to its short name. A setting may contain either name."""


def names(group_type: GroupType = "classic") -> tuple[str, ...]:
    """Returns the built-in assignors of a group type, Kafka's default first."""
    return tuple(name for kind, name in _IMPORT_PATHS if kind == group_type)


def get(name: str, group_type: GroupType = "classic") -> Any:
    """Returns an assignor by its name, or by "package.module:Class".

    Args:
        name: a name of `names(group_type)`, the class name of one of Kafka's assignors, or "package.module:Class" for a
            user's class. `get` calls the user's class without arguments. For classic and consumer groups, it wraps the
            object in `checked`, which validates the results.
        group_type: "classic" (client side), "consumer" (KIP-848), "share" (KIP-932) or "streams" (KIP-1071).

    Returns:
        A new assignor.

    Raises:
        ConfigError: the name is unknown, the class is not found, or it is not an assignor.
    """
    name = _KAFKA_CLASSES.get(name, name)
    import_path = _IMPORT_PATHS.get((group_type, name))
    if import_path is not None:
        return _load(import_path)()
    if ":" not in name:
        known = ", ".join(names(group_type))
        raise ConfigError(f"unknown {group_type} assignor {name!r}; valid: {known}, or a class as package.module:Class")
    made = _load(name)()
    if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "assign", None)):
        raise ConfigError(
            f"{name} is not an assignor: an assignor needs an attribute `name` (str) and a method `assign`"
        )
    return made if group_type in ("share", "streams") else checked(made)


def load_all(setting: str | Iterable[str], group_type: GroupType = "classic") -> dict[str, Any]:
    """Returns the assignors of a setting such as `group.consumer.assignors`, by name, in the setting's order.

    Args:
        setting: names that `get` accepts, in a list or separated by commas.
        group_type: the group type, as for `get`.

    Raises:
        ConfigError: `get` refuses a name, two assignors have the same name, or the setting is empty.
    """
    listed = setting.split(",") if isinstance(setting, str) else list(setting)
    found: dict[str, Any] = {}
    for entry in listed:
        made = get(entry.strip(), group_type)
        if made.name in found:
            raise ConfigError(f"two assignors have the name {made.name!r}")
        found[made.name] = made
    if not found:
        raise ConfigError("at least one assignor is needed")
    return found


def _load(import_path: str) -> Any:
    module, _, attribute = import_path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        hint = "; is its folder in PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"assignor {import_path}: {error}{hint}") from error


def validate(assignment: GroupAssignment, members: Members) -> None:
    """Checks that every partition of a subscribed topic is assigned at most once, and to a subscriber.

    Raises:
        PartitionAssignorError: a partition has two owners, an owner does not subscribe, or a member is unknown.
    """
    by_id = members if isinstance(members, Mapping) else {member.member_id: member for member in members}
    if not assignment.exclusive:
        raise PartitionAssignorError("two members have the same partition")
    topics = assignment.topics
    for member_id, assigned in assignment.items():
        member = by_id.get(member_id)
        if member is None:
            raise PartitionAssignorError(f"partitions are assigned to {member_id!r}, which is not a member")
        wanted = {topics.key_of(topic) for topic in member.topics}
        for topic in assigned:
            if topic not in wanted:
                raise PartitionAssignorError(f"member {member_id!r} gets {topic!r} without subscribing to it")


class CheckedAssignor:
    """A wrapper around a user's assignor. It converts the assignor's result to a GroupAssignment, and validates it."""

    __slots__ = ("name", "protocols", "wrapped")

    def __init__(self, wrapped: Assignor) -> None:
        self.wrapped = wrapped
        self.name = wrapped.name
        self.protocols: tuple[str, ...] = getattr(wrapped, "protocols", (EAGER,))

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. A member that is missing from the result receives no partitions.

        Raises:
            PartitionAssignorError: the result is invalid.
        """
        listed = list(members.values() if isinstance(members, Mapping) else members)
        known = topics if isinstance(topics, Topics) else Topics(topics)
        result = self.wrapped.assign(listed, known, previous)
        if not isinstance(result, GroupAssignment):
            whole: dict[str, Mapping[Any, Iterable[int]]] = {member.member_id: {} for member in listed}
            whole.update(result)
            try:
                result = assignment_of(whole, known)
            except ValueError as error:
                raise PartitionAssignorError(f"{self.name}: {error}") from error
        validate(result, listed)
        return result


def checked(assignor: Assignor) -> CheckedAssignor:
    """Wraps an assignor so that its results are validated."""
    return CheckedAssignor(assignor)
