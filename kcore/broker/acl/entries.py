"""Access control lists: entries, filters over them, and decisions (KIP-11, KIP-290, KIP-801).

The rules for an operation on a resource are those of Kafka's StandardAuthorizer:

1. The candidates are the entries of the resource's type whose pattern covers its name: the name itself (LITERAL), a
   prefix of it (PREFIXED), or LITERAL "*".
2. Of these, an entry applies if its principal is the client's or "User:*", and its host is the client's or "*". The
   host of an entry may have any notation of an IPv6 address, with or without "::".
3. A DENY entry for the operation, or for ALL, denies the operation. Implied operations are not denied: an entry that
   denies READ does not deny DESCRIBE.
4. Else an ALLOW entry for the operation, for ALL, or for an operation that implies it, allows the operation. READ,
   WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS.
5. Else the operation is denied, unless no entry covers the name and `allow.everyone.if.no.acl.found` is true.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

from kcore.protocol.authorizer import Operation, ResourceType
from kcore_ext.broker.acl import AclTableCore

WILDCARD = "*"


class PatternType(IntEnum):
    """Pattern type of an entry's resource name, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Permission of an entry, with the numbers of Kafka's `AclPermissionType`."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: Mapping[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation -> the operations that imply it in an ALLOW entry."""


@lru_cache(maxsize=1_024)
def _address(host: str) -> IPv6Address | None:
    """Parses an IPv6 address; returns None for anything else."""
    try:
        return IPv6Address(host)
    except AddressValueError:
        return None


class Acl(NamedTuple):
    """One entry, with the numbers of the wire protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """A filter over entries. None and ANY match everything. The pattern type MATCH selects every entry that covers the
    name; other types select entries with exactly this name.
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def unknown(self) -> bool:
        """True if a field of the filter has a number that kcore does not know.

        DeleteAcls refuses such a filter; in DescribeAcls, it matches no entry.
        """
        return (
            self.resource_type not in _RESOURCE_TYPES
            or self.pattern_type not in _PATTERN_TYPES
            or self.operation not in _OPERATIONS
            or self.permission not in _PERMISSIONS
        )

    def matches(self, acl: Acl) -> bool:
        """Tests if the filter selects an entry."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return covers(acl, self.resource_name)
        return self.resource_name == acl.resource_name


_RESOURCE_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_PATTERN_TYPES = frozenset(PatternType) - {PatternType.UNKNOWN}
_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN}
_PERMISSIONS = frozenset(Permission) - {Permission.UNKNOWN}


def covers(acl: Acl, name: str) -> bool:
    """Tests if an entry's pattern covers a resource's name."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def fault(acl: Acl) -> str | None:
    """Describes the fault of a new entry; None if the entry is valid."""
    if acl.resource_type not in _RESOURCE_TYPES - {ResourceType.ANY}:
        return f"unknown resource type {acl.resource_type}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"an entry cannot have the pattern type {acl.pattern_type}"
    if acl.operation not in _OPERATIONS - {Operation.ANY}:
        return f"unknown operation {acl.operation}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"unknown permission type {acl.permission}"
    if not acl.resource_name:
        return "the resource's name is empty"
    if ":" not in acl.principal:
        return f"{acl.principal!r} is not a principal of the form TYPE:NAME"
    return None


class AclTable(AclTableCore):
    """All entries, with an index for decisions. Only the metadata machine's `replay` changes them.

    Attributes:
        by_id: record id -> entry.
        ids: entry -> record id.
        epoch: number of changes.
    """

    __slots__ = ("by_id", "epoch", "ids")

    def __init__(self) -> None:
        super().__init__(dict(IMPLIED_BY), _canonical)
        self.by_id: dict[bytes, Acl] = {}
        self.ids: dict[Acl, bytes] = {}
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """Adds an entry."""
        self.by_id[acl_id] = acl
        self.ids[acl] = acl_id
        self.epoch += 1
        self.add_rule(*acl)

    def remove(self, acl_id: bytes) -> None:
        """Removes an entry."""
        acl = self.by_id.pop(acl_id)
        del self.ids[acl]
        self.epoch += 1
        self.remove_rule(*acl)

    def decide_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Decides if the entries allow an operation on at least one resource, existing or not (KIP-679).

        An ALLOW entry has no effect if a DENY entry covers every name that the ALLOW entry covers. Only entries for the
        operation itself, or for ALL, are examined.
        """
        granted, granted_prefixes, denied, denied_prefixes = self.names_of(principal, host, operation, resource_type)
        if WILDCARD in denied:
            return False
        if WILDCARD in granted:
            return True
        names = (granted - denied) | granted_prefixes
        if not denied_prefixes:
            return bool(names)
        prefixes = _without_longer(denied_prefixes)

        def is_effective(name: str) -> bool:
            at = bisect_right(prefixes, name) - 1
            return at < 0 or not name.startswith(prefixes[at])

        return any(map(is_effective, names))


def _canonical(host: str) -> str:
    """Returns the normal notation of an IPv6 address; returns any other host unchanged."""
    address = _address(host) if ":" in host else None
    return host if address is None else str(address)


def _without_longer(prefixes: set[str]) -> list[str]:
    """Returns the sorted prefixes, except prefixes that begin with another prefix.

    At most one prefix of the result can match a name: the last one that sorts before the name or equals it.
    """
    shortest: list[str] = []
    for prefix in sorted(prefixes):
        if not shortest or not prefix.startswith(shortest[-1]):
            shortest.append(prefix)
    return shortest
