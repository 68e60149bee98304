"""An engine with access control lists, in virtual time. A test chooses the principal of each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcore.broker.acl.entries import Acl, PatternType, Permission
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kcore.protocol.schema import Struct
from kcore.runtime import Pending
from tests.harness import EngineHarness

ADMIN, ALICE, ANY_PRINCIPAL = "User:admin", "User:alice", "User:*"
HOST = "10.0.0.7"
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"{ADMIN};User:CN=ops,O=kcore",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def acl(
    operation: Operation,
    kind: ResourceType = ResourceType.TOPIC,
    name: str = "t",
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = ALICE,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> Acl:
    """Makes one access control entry. By default, the resource is the cluster."""
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else name
    return Acl(kind, name, pattern, principal, host, operation, permission)


class Guarded(EngineHarness):
    """A node with an authorizer, whose requests have a principal and a host.

    Args:
        settings: settings in addition to `SETTINGS`, with _ in place of dots in their names.
    """

    def __init__(self, **settings: str) -> None:
        super().__init__(SETTINGS | {name.replace("_", "."): value for name, value in settings.items()})

    def send(self, request: Any, version: int | None = None, who: str = ALICE, host: str = HOST) -> Any:
        """Sends a request, encoded and decoded as on the wire; returns the response."""
        version = self.engine.newest_version(request) if version is None else version
        self.engine.turn()
        response = self.start(request, version, client_host=f"/{host}", principal=who)
        self.settle()
        self.engine.turn()
        if isinstance(response, Pending) and not response.done:
            self.advance(1_000)
        return self.received(response, version)

    def codes(self, request: Any, version: int | None = None, who: str = ALICE) -> set[int]:
        """Sends a request. Returns the error codes in the response, without NONE."""
        return set(error_codes(self.send(request, version, who))) - {0}

    def create(self, *entries: Acl) -> Any:
        """Sends CreateAcls as the super user. Returns the results."""
        creations = [
            AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in entries
        ]
        return self.send(CreateAclsRequest(creations=creations), 3, ADMIN).results

    def allow(self, *entries: Acl) -> None:
        """Creates entries as the super user; each must be accepted."""
        assert [result.error_code for result in self.create(*entries)] == [0] * len(entries)

    def forget(self) -> None:
        """Deletes all entries."""
        anything = DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        self.send(DeleteAclsRequest(filters=[anything]), 3, ADMIN)
        assert len(self.engine.topics.image.acls) == 0

    @property
    def entries(self) -> set[Acl]:
        return set(self.engine.topics.image.acls.ids)


def error_codes(value: Any) -> Iterator[int]:
    """Yields every error code in a response, including those of partitions."""
    for spec in type(value).FIELDS:
        inner = getattr(value, spec.name)
        if spec.name in ("error_code", "partition_error_code"):
            yield inner
        elif isinstance(inner, Struct):
            yield from error_codes(inner)
        elif isinstance(inner, list | tuple):
            for item in inner:
                if isinstance(item, Struct):
                    yield from error_codes(item)


__all__ = ["ADMIN", "ALICE", "ANY_PRINCIPAL", "HOST", "Guarded", "acl", "error_codes"]
