"""Access control lists: creation, description and deletion of entries (KIP-140)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kcore.errors import KafkaError
from kcore.node._async.calls import AsyncCalls
from kcore.node.acls import Acl, acl_of, creation_of, describe_request, filter_of, listed
from kcore.protocol.messages.create_acls import CreateAclsRequest
from kcore.protocol.messages.delete_acls import DeleteAclsRequest


class AsyncAcls:
    """The access control lists of a cluster: `node.acls`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"AsyncAcls({str(self._calls.transport)!r})"

    async def describe(
        self,
        *,
        resource_type: str | None = None,
        resource_name: str | None = None,
        principal: str | None = None,
        operation: str | None = None,
        permission: str | None = None,
        host: str | None = None,
        pattern_type: str | None = None,
    ) -> list[Acl]:
        """Returns the entries that match every argument, sorted. Without arguments, returns all entries.

        Args:
            resource_type: the type of the resource, for example "TOPIC".
            resource_name: the resource's name in the entry.
            principal: the client, for example "User:alice".
            operation: the allowed or denied operation, for example "READ".
            permission: "ALLOW" or "DENY".
            host: the client's address.
            pattern_type: "LITERAL" or "PREFIXED". "MATCH" returns the entries that apply to the resource with
                `resource_name`, including entries for "*" and for prefixes of the name.

        Raises:
            ConfigError: a name does not exist.
            SecurityDisabledError: the server has no authorizer.
            KafkaError: the server refused the request.
            TypeError: an argument is not a string.
        """
        request = describe_request(
            {
                "resource_type": resource_type,
                "resource_name": resource_name,
                "principal": principal,
                "operation": operation,
                "permission": permission,
                "host": host,
                "pattern_type": pattern_type,
            }
        )

        def read(response: Any) -> list[Acl]:
            if response.error_code:
                raise KafkaError.of(response.error_code, response.error_message)
            return sorted(acl_of(resource, row) for resource in response.resources for row in resource.acls)

        return await self._calls.call(request, read)

    async def create(self, acls: Acl | Iterable[Acl]) -> None:
        """Creates entries. An entry that exists already causes no error.

        Args:
            acls: an entry, or several.

        Raises:
            ConfigError: a name of an entry is "UNKNOWN".
            SecurityDisabledError: the server has no authorizer.
            KafkaError: the server refused an entry; it may have created the other entries.
        """
        entries = listed(acls)

        def read(response: Any) -> None:
            for entry, row in zip(entries, response.results, strict=True):
                if row.error_code:
                    raise KafkaError.of(row.error_code, row.error_message or f"{entry} was refused")

        if entries:
            await self._calls.call(CreateAclsRequest(creations=[creation_of(each) for each in entries]), read)

    async def delete(self, acls: Acl | Iterable[Acl]) -> list[Acl]:
        """Deletes entries, for example entries that `describe` has returned.

        Args:
            acls: an entry, or several.

        Returns:
            The entries that existed.

        Raises:
            ConfigError: a name of an entry is "UNKNOWN". Only a newer client can delete such an entry.
            SecurityDisabledError: the server has no authorizer.
            KafkaError: the server refused the deletion of an entry; it may have deleted the other entries.
        """
        entries = listed(acls)

        def read(response: Any) -> list[Acl]:
            rows = [row for result in response.filter_results for row in (result, *result.matching_acls)]
            for row in rows:
                if row.error_code:
                    raise KafkaError.of(row.error_code, row.error_message)
            return sorted({acl_of(row, row) for result in response.filter_results for row in result.matching_acls})

        if not entries:
            return []
        return await self._calls.call(DeleteAclsRequest(filters=[filter_of(each) for each in entries]), read)
