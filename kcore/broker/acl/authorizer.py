"""The authorizer over the access control lists, and the construction of the authorizer that the settings name."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Any

from kcore.broker.acl.denials import DenialLog
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.errors import ConfigError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.security.plugin import load_object

if TYPE_CHECKING:
    from kcore.broker.acl.entries import AclTable
    from kcore.broker.metadata.topics import Topics
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer

MAX_CACHED_BYTES = 4 << 20  # memory of the decision cache; a full cache is cleared
MAX_CACHED_ANY = 1_000  # cached decisions about any resource; a full cache is cleared
MAX_CACHED_CHARACTERS = 300  # decisions with longer principals or resource names are not cached; topics have 249
ENTRY_BYTES = 250  # a cached decision without its strings: the key's tuple and its dictionary entry
_PROBE = "hardcode"  # an arbitrary resource name: a principal with unlimited rights is allowed on it too


class AclAuthorizer:
    """Authorizer over the access control lists in the metadata; `kcore.broker.acl.entries` has Kafka's rules.

    Args:
        topics: gives access to the metadata image.
        super_users: principals that are allowed every operation.
        allow_if_none: the decision for a resource that no entry covers.
        now: the time of the round, for the log of denied operations.
    """

    __slots__ = (
        "_allow_if_none",
        "_cached",
        "_cached_any",
        "_cached_bytes",
        "_denials",
        "_epoch",
        "_super_users",
        "_table",
        "_topics",
    )

    def __init__(self, topics: Topics, super_users: frozenset[str], allow_if_none: bool, now: Now) -> None:
        self._topics = topics
        self._denials = DenialLog(now)
        self._super_users = super_users
        self._allow_if_none = allow_if_none
        self._table: AclTable | None = None
        self._epoch = -1
        self._cached: dict[tuple[str, str, int, int, str], bool] = {}
        self._cached_any: dict[tuple[str, str, int, int], bool] = {}
        self._cached_bytes = 0

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        """Decides if the client may perform the operation; a cached decision is valid until an entry changes."""
        table = self._topics.image.acls
        if table is not self._table or table.epoch != self._epoch:
            self._table, self._epoch = table, table.epoch
            self._clear()
        key = (context.principal, context.client_host, operation, resource_type, resource_name)
        decision = self._cached.get(key)
        if decision is None:
            decision = self._decide(table, *key)
            self._cache(key, decision)
        return decision

    def _clear(self) -> None:
        self._cached.clear()
        self._cached_any.clear()
        self._cached_bytes = 0

    def _cache(self, key: tuple[str, str, int, int, str], decision: bool) -> None:
        """Caches a decision, unless its names are long: clients choose the names and could fill the memory."""
        principal, client_host, _, _, name = key
        if len(name) > MAX_CACHED_CHARACTERS or len(principal) > MAX_CACHED_CHARACTERS:
            return
        # A principal occurs in many keys and is counted in each of them: the sum is an upper bound.
        size_bytes = ENTRY_BYTES + getsizeof(principal) + getsizeof(client_host) + getsizeof(name)
        if self._cached_bytes + size_bytes > MAX_CACHED_BYTES:
            self._clear()
        self._cached[key] = decision
        self._cached_bytes += size_bytes

    def _decide(
        self, table: AclTable, principal: str, client_host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        found = table.decide(principal, _host(client_host), operation, resource_type, name)
        decision = self._allow_if_none if found is None else found
        if not decision:
            self._denials.denied(principal, client_host, operation, resource_type, name)
        return decision

    def allowed_on_any(self, context: Any, operation: Operation, resource_type: ResourceType) -> bool:
        """Decides if the client may perform the operation on any resource of a type, existing or not (KIP-679)."""
        if self.allowed(context, operation, resource_type, _PROBE):
            return True
        # The decision may look at all entries. The call of `allowed` has cleared the cache if an entry has changed.
        key = (context.principal, _host(context.client_host), int(operation), int(resource_type))
        decision = self._cached_any.get(key)
        if decision is None:
            if len(self._cached_any) >= MAX_CACHED_ANY:
                self._cached_any.clear()
            decision = self._cached_any[key] = self._topics.image.acls.decide_any(*key)
        return decision


def _host(client_host: str) -> str:
    return client_host.removeprefix("/")


def make_authorizer(config: Config, topics: Topics, now: Now) -> Authorizer | None:
    """Makes the authorizer that `authorizer.class.name` names. Without one (None), every operation is allowed.

    A custom class is called with the configuration. It must have the method `allowed` of
    `kcore.protocol.authorizer.Authorizer`.

    Raises:
        ConfigError: the class does not exist or lacks `allowed`, or a super user does not have the form TYPE:NAME.
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
    made = load_object(name, "authorizer.class.name")(config)
    if not callable(getattr(made, "allowed", None)):
        raise ConfigError(f"authorizer.class.name={name} has no method allowed(context, operation, type, name)")
    authorizer: Authorizer = made
    return authorizer
