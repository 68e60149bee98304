"""Access control lists: entries, filters over them, and what they allow (KIP-11, KIP-290, KIP-801).

The rules, as Kafka's StandardAuthorizer has them, for an operation on a resource:

1. What counts are the entries of the resource's type whose pattern covers its name: the name itself (LITERAL), a
   beginning of it (PREFIXED), or LITERAL "*".
2. Of these, an entry speaks of the one who asks if its principal is theirs or "User:*", and its host theirs or "*".
3. A DENY entry for the operation, or for ALL, decides: denied. It denies nothing that the operation would imply.
4. Else an ALLOW entry for the operation, for ALL, or for an operation that implies it, decides: allowed. READ, WRITE,
   DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS.
5. Else it is denied; unless no entry covers the name at all, and `allow.everyone.if.no.acl.found` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from kcore.protocol.authorizer import Operation, ResourceType

WILDCARD = "*"
ANY_PRINCIPAL = "User:*"


class PatternType(IntEnum):
    """How an entry's resource name is meant; the number is Kafka's."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an entry does; the number is Kafka's `AclPermissionType`."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: Mapping[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation -> those that imply it, where they are allowed."""


class Acl(NamedTuple):
    """One entry, in the numbers of the wire."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Which entries are meant. None and ANY match everything; a pattern type of MATCH means every entry that covers the
    name, not only those that have it.
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
        """Whether it asks for something that does not exist: such a filter is refused, or matches nothing."""
        return (
            self.resource_type not in _RESOURCE_TYPES
            or self.pattern_type not in _PATTERN_TYPES
            or self.operation not in _OPERATIONS
            or self.permission not in _PERMISSIONS
        )

    def matches(self, acl: Acl) -> bool:
        """Whether an entry is meant."""
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
    """Whether an entry's pattern covers a resource's name."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def implies(acl: Acl, operation: int) -> bool:
    """Whether an entry speaks of an operation; what another operation implies counts where it is allowed."""
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def fault(acl: Acl) -> str | None:
    """What is wrong with a new entry; None if it can be made."""
    if acl.resource_type not in _RESOURCE_TYPES - {ResourceType.ANY}:
        return f"there is no resource type {acl.resource_type}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"an entry cannot have the pattern type {acl.pattern_type}"
    if acl.operation not in _OPERATIONS - {Operation.ANY}:
        return f"there is no operation {acl.operation}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"there is no permission {acl.permission}"
    if not acl.resource_name:
        return "the resource's name is empty"
    if ":" not in acl.principal:
        return f"{acl.principal!r} is no principal, which is TYPE:NAME"
    return None


class AclTable:
    """All entries, found by what they cover. Changed by the metadata machine's `replay` and by nothing else.

    Attributes:
        by_id: the id of its record -> an entry.
        ids: entry -> the id of its record.
        epoch: counts changes: what was worked out at another epoch may be wrong now.
    """

    __slots__ = ("_lengths", "_literal", "_prefixed", "by_id", "epoch", "ids")

    def __init__(self) -> None:
        self.by_id: dict[bytes, Acl] = {}
        self.ids: dict[Acl, bytes] = {}
        self.epoch = 0
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        self._lengths: dict[int, dict[int, int]] = {}  # resource type -> length of a prefix -> how many have it

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """A new entry."""
        self.by_id[acl_id] = acl
        self.ids[acl] = acl_id
        self.epoch += 1
        key = (acl.resource_type, acl.resource_name)
        if acl.pattern_type == PatternType.LITERAL:
            self._literal.setdefault(key, []).append(acl)
            return
        if key not in self._prefixed:
            lengths = self._lengths.setdefault(acl.resource_type, {})
            lengths[len(acl.resource_name)] = lengths.get(len(acl.resource_name), 0) + 1
        self._prefixed.setdefault(key, []).append(acl)

    def remove(self, acl_id: bytes) -> None:
        """An entry is gone."""
        acl = self.by_id.pop(acl_id)
        del self.ids[acl]
        self.epoch += 1
        key = (acl.resource_type, acl.resource_name)
        table = self._literal if acl.pattern_type == PatternType.LITERAL else self._prefixed
        table[key].remove(acl)
        if table[key]:
            return
        del table[key]
        if table is self._prefixed:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]

    def matching(self, wanted: AclFilter) -> list[tuple[bytes, Acl]]:
        """(id, entry) of every entry that a filter means, in the order they were made."""
        return [(acl_id, acl) for acl_id, acl in self.by_id.items() if wanted.matches(acl)]

    def covering(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Every entry that covers a resource."""
        literal, prefixed = self._literal, self._prefixed
        yield from literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from literal.get((resource_type, WILDCARD), ())
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield from prefixed.get((resource_type, name[:length]), ())

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool | None:
        """Whether the entries allow an operation; None if none of them covers the resource.

        Args:
            principal: who asks: "User:alice".
            host: from where, without a leading slash.
            operation: what is to be done.
            resource_type: to what kind of thing.
            name: to which one.
        """
        covered = allowed = False
        for acl in self.covering(resource_type, name):
            covered = True
            if acl.principal not in (principal, ANY_PRINCIPAL) or acl.host not in (host, WILDCARD):
                continue
            if implies(acl, operation):
                if acl.permission == Permission.DENY:
                    return False
                allowed = True
        return allowed if covered else None

    def decide_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the entries allow an operation on some resource, be there one or not (KIP-679).

        An entry that allows counts unless one that denies covers all that it covers. Only entries for the operation
        itself, or for ALL, count.
        """
        denied: set[str] = set()
        denied_prefixes: set[str] = set()
        granted: list[Acl] = []
        for acl in self.by_id.values():
            if (
                acl.resource_type != resource_type
                or acl.principal not in (principal, ANY_PRINCIPAL)
                or acl.host not in (host, WILDCARD)
                or acl.operation not in (operation, Operation.ALL)
            ):
                continue
            if acl.permission == Permission.ALLOW:
                granted.append(acl)
            elif acl.pattern_type == PatternType.PREFIXED:
                denied_prefixes.add(acl.resource_name)
            elif acl.resource_name == WILDCARD:
                return False
            else:
                denied.add(acl.resource_name)

        def stands(acl: Acl) -> bool:
            name = acl.resource_name
            if acl.pattern_type == PatternType.LITERAL:
                if name == WILDCARD:
                    return True
                if name in denied:
                    return False
            return not any(name.startswith(prefix) for prefix in denied_prefixes)

        return any(map(stands, granted))
