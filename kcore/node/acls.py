"""Entries of access control lists, and their form in requests (KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from kcore.errors import ConfigError
from kcore.node.arguments import check_text, check_texts
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.messages.create_acls import AclCreation
from kcore.protocol.messages.delete_acls import DeleteAclsFilter
from kcore.protocol.messages.describe_acls import DescribeAclsRequest

UNKNOWN: Final = "UNKNOWN"
ANY: Final = "ANY"
MATCH: Final = "MATCH"

NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    "resource_type": {each.name: each for each in ResourceType},
    "operation": {each.name: each for each in Operation},
    "permission": {UNKNOWN: 0, ANY: 1, "DENY": 2, "ALLOW": 3},
    "pattern_type": {UNKNOWN: 0, ANY: 1, MATCH: 2, "LITERAL": 3, "PREFIXED": 4},
}
"""Mapping from each field of an ACL to its valid names, with their numbers in requests and responses."""

_NAMES: Final = {field: {number: name for name, number in names.items()} for field, names in NUMBERS.items()}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An entry of the access control lists.

    The names of types, operations and permissions are Kafka's. Their case does not matter in arguments.

    Attributes:
        resource_type: "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN" or "USER".
        resource_name: the name of the resource, a prefix of it, or "*" for all. The name of the cluster is
            "kafka-cluster".
        principal: the client, for example "User:alice"; "User:*" for all.
        operation: "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS" or "DESCRIBE_TOKENS".
        permission: "ALLOW" or "DENY".
        host: the client's address; "*" for all.
        pattern_type: "LITERAL", or "PREFIXED" if `resource_name` is a prefix.

    Raises:
        ConfigError: a name does not exist.
        TypeError: a field is not a string. None is not valid, because in a deletion it would match all entries.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "ALLOW"
    host: str = "*"
    pattern_type: str = "LITERAL"

    def __post_init__(self) -> None:
        """Converts names to upper case, and checks all fields."""
        for field in ("resource_name", "principal", "host"):
            check_text(field, getattr(self, field))
        for field in NUMBERS:
            name = getattr(self, field)
            if name != UNKNOWN:  # a server may have names that this client does not know
                object.__setattr__(self, field, _name_of(field, name, {ANY, MATCH, UNKNOWN}))


def _name_of(field: str, name: str, excluded: Iterable[str]) -> str:
    """Returns a name as Kafka writes it, for example "TRANSACTIONAL_ID" for "TransactionalId".

    Raises:
        ConfigError: the name does not exist.
    """
    valid = [each for each in NUMBERS[field] if each not in excluded]
    for each in valid:
        if str(name).upper().replace("_", "") == each.replace("_", ""):
            return each
    raise ConfigError(f"{field}: {name!r} does not exist; valid: {', '.join(map(repr, valid))}")


def _number_of(field: str, name: str | None) -> int:
    """Returns the number of a name in a filter; None matches all names."""
    return NUMBERS[field][ANY if name is None else _name_of(field, name, {UNKNOWN})]


def _numbers_of(acl: Acl) -> dict[str, int]:
    """Returns the numbers of an entry's names, by field.

    Raises:
        ConfigError: this client does not know a name of the entry. After a request with such a name, a server would
            close the connection.
    """
    return {field: NUMBERS[field][_name_of(field, getattr(acl, field), {ANY, MATCH, UNKNOWN})] for field in NUMBERS}


def acl_of(resource: Any, row: Any) -> Acl:
    """Converts an entry of a response to an `Acl`.

    Args:
        resource: the part of the response with type, name and pattern of the resource.
        row: the part of the response with the other fields.
    """
    names = _NAMES
    return Acl(
        names["resource_type"].get(resource.resource_type, UNKNOWN),
        resource.resource_name,
        row.principal,
        names["operation"].get(row.operation, UNKNOWN),
        names["permission"].get(row.permission_type, UNKNOWN),
        row.host,
        names["pattern_type"].get(resource.pattern_type, UNKNOWN),
    )


def creation_of(acl: Acl) -> AclCreation:
    """Converts an entry to its form in a CreateAcls request.

    Raises:
        ConfigError: this client does not know a name of the entry.
    """
    numbers = _numbers_of(acl)
    return AclCreation(
        resource_type=numbers["resource_type"],
        resource_name=acl.resource_name,
        resource_pattern_type=numbers["pattern_type"],
        principal=acl.principal,
        host=acl.host,
        operation=numbers["operation"],
        permission_type=numbers["permission"],
    )


def filter_of(acl: Acl) -> DeleteAclsFilter:
    """Returns a filter that matches exactly one entry.

    Raises:
        ConfigError: this client does not know a name of the entry.
    """
    numbers = _numbers_of(acl)
    return DeleteAclsFilter(
        resource_type_filter=numbers["resource_type"],
        resource_name_filter=acl.resource_name,
        pattern_type_filter=numbers["pattern_type"],
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=numbers["operation"],
        permission_type=numbers["permission"],
    )


def describe_request(filters: Mapping[str, str | None]) -> DescribeAclsRequest:
    """Returns a request for the entries that match a filter.

    Args:
        filters: field of `Acl` -> its value; None: any.

    Raises:
        ConfigError: this client does not know a resource type, pattern type, operation or permission of the filter. Or
            a text is too long.
        TypeError: a value is not a string.
    """
    check_texts(**filters)
    return DescribeAclsRequest(
        resource_type_filter=_number_of("resource_type", filters["resource_type"]),
        resource_name_filter=filters["resource_name"],
        pattern_type_filter=_number_of("pattern_type", filters["pattern_type"]),
        principal_filter=filters["principal"],
        host_filter=filters["host"],
        operation=_number_of("operation", filters["operation"]),
        permission_type=_number_of("permission", filters["permission"]),
    )


def listed(acls: Acl | Iterable[Acl]) -> list[Acl]:
    """Returns one entry or several as a list.

    Raises:
        TypeError: an element is not an `Acl`.
    """
    entries = [acls] if isinstance(acls, Acl) else list(acls)
    for entry in entries:
        if not isinstance(entry, Acl):
            names = ", ".join(field.name for field in fields(Acl))
            raise TypeError(f"{entry!r} is not a kcore.Acl({names})")
    return entries
