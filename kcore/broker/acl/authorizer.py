"""The authorizer over the access control lists, and the construction of the authorizer that the settings name."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Any

from kcore.broker.acl.denials import DenialLog
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.errors import ConfigError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.security.plugin import load_object
from kcore_ext.broker.acl import AclAuthorizerCore

if TYPE_CHECKING:
    from kcore.broker.acl.entries import AclTable
    from kcore.broker.metadata.topics import Topics
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer

MAX_CACHED_BYTES = 4 << 20  # memory of the cache of denials; a full cache is cleared
MAX_CACHED_ANY = 1_000  # cached decisions about any resource; a full cache is cleared
MAX_CACHED_CHARACTERS = 300  # denials with longer principals or resource names are not cached; topics have 249
ENTRY_BYTES = 250  # a cached denial without its strings: the key's tuple and its entry
_PROBE = "hardcode"  # an arbitrary resource name: a principal with unlimited rights is allowed on it too


class AclAuthorizer(AclAuthorizerCore):
    """Authorizer over the access control lists in the metadata. `kcore.broker.acl.entries` documents its rules.

    The compiled base class decides if an operation on a named resource is allowed; it caches no decisions. This class
    caches the decisions of `allowed_on_any` and the logged denials until an entry changes.

    Args:
        topics: gives access to the metadata image.
        super_users: principals that are allowed every operation.
        allow_if_none: True to allow operations on a resource that no entry covers.
        now: the clock, which limits the rate of log lines about denied operations.
    """

    __slots__ = ("_any", "_denials", "_denied", "_denied_bytes", "_epoch", "_table", "_topics")

    def __init__(self, topics: Topics, super_users: frozenset[str], allow_if_none: bool, now: Now) -> None:
        super().__init__(topics, super_users, allow_if_none)
        self._topics = topics
        self._denials = DenialLog(now)
        self._table: AclTable | None = None
        self._epoch = -1
        self._denied: set[tuple[str, str, int, int, str]] = set()
        self._denied_bytes = 0
        self._any: dict[tuple[str, str, int, int], bool] = {}

    def _current_table(self) -> AclTable:
        """Returns the entries, and clears the caches if an entry has changed."""
        table = self._topics.image.acls
        if table is not self._table or table.epoch != self._epoch:
            self._table, self._epoch = table, table.epoch
            self._any.clear()
            self._clear_denied()
        return table

    def _clear_denied(self) -> None:
        self._denied.clear()
        self._denied_bytes = 0

    def denied(self, principal: str, client_host: str, operation: int, resource_type: int, name: str) -> None:
        """Logs a denial, unless the same denial was logged before: a client may repeat a denied request many times."""
        self._current_table()
        key = (principal, client_host, operation, resource_type, name)
        if key in self._denied:
            return
        self._denials.denied(*key)
        # Clients choose the names and could fill the memory.
        if len(name) > MAX_CACHED_CHARACTERS or len(principal) > MAX_CACHED_CHARACTERS:
            return
        # A principal occurs in many keys and is counted in each of them: the sum is an upper bound.
        size_bytes = ENTRY_BYTES + getsizeof(principal) + getsizeof(client_host) + getsizeof(name)
        if self._denied_bytes + size_bytes > MAX_CACHED_BYTES:
            self._clear_denied()
        self._denied.add(key)
        self._denied_bytes += size_bytes

    def allowed_on_any(self, context: Any, operation: Operation, resource_type: ResourceType) -> bool:
        """Decides if the client may perform the operation on at least one resource of a type, existing or not
        (KIP-679).
        """
        if self.allowed(context, operation, resource_type, _PROBE):
            return True
        table = self._current_table()  # the decision may examine all entries
        key = (context.principal, context.client_host, int(operation), int(resource_type))
        decision = self._any.get(key)
        if decision is None:
            if len(self._any) >= MAX_CACHED_ANY:
                self._any.clear()
            decision = self._any[key] = table.decide_any(*key)
        return decision


def make_authorizer(config: Config, topics: Topics, now: Now) -> Authorizer | None:
    """Makes the authorizer that `authorizer.class.name` names.

    Returns None if the setting is empty; every operation is then allowed.

    A custom class is called with the configuration. It must have the method `allowed` of
    `kcore.protocol.authorizer.Authorizer`.

    Raises:
        ConfigError: the class does not exist, cannot be called with the configuration, or has no method `allowed`. Or a
            super user does not have the form TYPE:NAME.
    """
    name = config.authorizer_class_name
    if not name:
        return None
    if name == STANDARD_AUTHORIZER:
        users = [user.strip() for user in config.super_users.split(";") if user.strip()]
        for user in users:
            if ":" not in user:
                raise ConfigError(f"super.users: {user!r} is not a principal of the form TYPE:NAME")
        return AclAuthorizer(topics, frozenset(users), config.allow_everyone_if_no_acl_found, now)
    try:
        made = load_object(name, "authorizer.class.name")(config)
    except TypeError as error:  # such as a class without arguments
        raise ConfigError(f"authorizer.class.name={name} cannot be called with the configuration: {error}") from error
    if not callable(getattr(made, "allowed", None)):
        raise ConfigError(f"authorizer.class.name={name} has no method allowed(context, operation, type, name)")
    authorizer: Authorizer = made
    return authorizer
