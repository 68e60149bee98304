"""The compiled index of access control lists, and the compiled base of the authorizer that uses them."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

class AclTableCore:
    """An index of access control entries by principal, host and resource pattern. A decision looks up only the entries
    of the client.

    Args:
        implied_by: operation -> the operations that imply it in an ALLOW entry.
        canonical: converts the text of a host address to its canonical form.

    Attributes:
        patterns: the number of different resource patterns of all entries.
        principals: the number of principals with entries, each counted once for each resource type.
    """

    def __init__(self, implied_by: dict[int, frozenset[int]], canonical: Callable[[str], str]) -> None: ...
    @property
    def patterns(self) -> int: ...
    @property
    def principals(self) -> int: ...
    def add_rule(
        self,
        resource_type: int,
        name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> None:
        """Adds an entry. The arguments are the fields of `kcore.broker.acl.entries.Acl`."""

    def remove_rule(
        self,
        resource_type: int,
        name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> None:
        """Removes an entry.

        Raises:
            KeyError: there is no such entry.
        """

    def names_of(
        self, principal: str, client_host: str, operation: int, resource_type: int
    ) -> tuple[set[str], set[str], set[str], set[str]]:
        """Returns the resource names in the entries that apply to a client, for an operation or for ALL.

        The four sets contain: literal names of ALLOW entries, prefixes of ALLOW entries, literal names of DENY entries,
        and prefixes of DENY entries.
        """

    def decide(self, principal: str, client_host: str, operation: int, resource_type: int, name: str) -> bool | None:
        """Returns True if the entries allow an operation, False if not, and None if no entry covers the resource.

        Args:
            principal: the client's principal, such as "User:alice".
            client_host: the client's host, which may begin with a slash.
            operation: the requested operation.
            resource_type: the resource's type.
            name: the resource's name.
        """

class AclAuthorizerCore:
    """The compiled base of the authorizer, which allows or denies operations by the access control lists.

    Args:
        topics: gives access to the metadata image.
        super_users: principals that are allowed every operation.
        allow_if_none: the decision for a resource that no entry covers.
    """

    super_users: frozenset[str]

    def __init__(self, topics: Any, super_users: frozenset[str], allow_if_none: bool) -> None: ...
    def allowed(self, context: Any, operation: int, resource_type: int, resource_name: str) -> bool:
        """Returns True if the current entries allow the client the operation; otherwise calls `denied` and returns
        False.
        """

    @abstractmethod
    def denied(self, principal: str, client_host: str, operation: int, resource_type: int, name: str) -> None:
        """Logs a denial. `allowed` calls the method whenever it denies an operation."""
