"""DeleteAcls (key 31, versions 1-3): deletes the entries that filters select (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kcore.broker.acl.entries import Acl, PatternType
from kcore.broker.apis.acls import AclApi, filter_of, refuse_zeroes
from kcore.broker.apis.control import client_code
from kcore.broker.metadata.records import acl_removal_record
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kcore.runtime.pending import gather
from kcore.runtime.shard_state import ShardState

if TYPE_CHECKING:
    from kcore.broker.acl.entries import AclFilter
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work


STEP_ENTRIES = 1_000
"""Number of entries that one step compares with a filter. Each comparison takes about a microsecond."""
FILTER_COST_US = 5
"""The cost of one filter without the comparisons, in microseconds."""
DESCRIPTION_COST_US = 3
"""The cost of describing a selected entry in the response, in microseconds."""
STEP_REMOVALS = 500
"""Maximum number of entries that one decision deletes."""
REMOVAL_COST_US = 10
"""The cost of deleting an entry and of its commit, in microseconds."""
MAX_SELECTED = 200_000
"""Maximum number of entries in one response. An entry counts once for each filter that selects it."""


class Selection(NamedTuple):
    """The entries that a request deletes.

    Attributes:
        request: the DeleteAcls request.
        acl_ids: the ids of the entries.
        response: the response to the request.
    """

    request: DeleteAclsRequest
    acl_ids: list[bytes]
    response: DeleteAclsResponse

    def merged(self, decided: list[DeleteAclsResponse]) -> DeleteAclsResponse:
        """Returns the response to the request: the first error response in `decided`, or else `response`.

        Args:
            decided: the response of each decision. Each decision deletes a part of the entries.
        """
        return next((response for response in decided if response is not self.response), self.response)


class DeleteAclsApi(AclApi[DeleteAclsRequest, DeleteAclsResponse]):
    """Handler of DeleteAcls requests. An entry that two filters select is in both results and is deleted once."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DELETE_ACLS
    request_type: ClassVar[type] = DeleteAclsRequest
    response_type: ClassVar[type] = DeleteAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    operation: ClassVar[Operation] = Operation.ALTER

    def handle(self, context: RequestContext, request: DeleteAclsRequest) -> Any:
        """Refuses filters that Kafka cannot parse, then decides in the metadata shard."""
        self.require_parsable(request)
        shard = self.shard
        if shard.state is not ShardState.ACTIVE:
            return shard.run(self, context, request)
        self.check(context)

        def finish(result: tuple[Selection, list[Any]]) -> Any:
            selection, decided = result
            return gather(self, context, request, decided, selection.merged)

        work = self._delete(shard.machine, context, request)
        return shard.slices.requests.run(self, context, request, work, finish, eager=True)

    def require_parsable(self, request: DeleteAclsRequest) -> None:
        """Refuses a request with an unknown type, operation or permission."""
        for requested in request.filters:
            refuse_zeroes(
                requested.resource_type_filter,
                requested.pattern_type_filter,
                requested.operation,
                requested.permission_type,
            )

    def _delete(self, machine: MetadataMachine, context: RequestContext, request: DeleteAclsRequest) -> Work:
        """Deletes the selected entries in parts; each part is durable as a whole or not at all."""
        selection = yield from self._select(machine, request)
        acl_ids, decided = selection.acl_ids, []
        for first in range(0, max(1, len(acl_ids)), STEP_REMOVALS):
            some = acl_ids[first : first + STEP_REMOVALS]
            decided.append(self.shard.run(self, context, selection._replace(acl_ids=some)))
            yield REMOVAL_COST_US * len(some)
        return selection, decided

    def _select(self, machine: MetadataMachine, request: DeleteAclsRequest) -> Work:
        """Finds the entries that each filter selects.

        All filters are compared with the entries that existed at the start. Equal filters are evaluated once.

        Raises:
            KafkaError: POLICY_VIOLATION if the filters select too many entries for one response.
        """
        acls = machine.image.acls
        entries = list(acls.by_id.items())
        by_name: dict[str, list[tuple[bytes, Acl]]] = {}
        for first in range(0, len(entries), STEP_ENTRIES):
            some = entries[first : first + STEP_ENTRIES]
            for entry in some:
                by_name.setdefault(entry[1].resource_name, []).append(entry)
            yield len(some)
        known: dict[AclFilter, DeleteAclsFilterResult] = {}
        deleted: dict[bytes, None] = {}
        results = []
        selected = 0
        for requested in request.filters:
            acl_filter = filter_of(requested)
            result = known.get(acl_filter)
            if result is None:
                result = known[acl_filter] = DeleteAclsFilterResult(error_message=None)
                if acl_filter.unknown:
                    result.error_code = ErrorCode.INVALID_REQUEST
                    result.error_message = "the filter has an unknown type, operation or permission"
                else:
                    matching: list[tuple[bytes, Acl]] = []
                    name = acl_filter.resource_name
                    exact = name is not None and acl_filter.pattern_type != PatternType.MATCH
                    candidates = by_name.get(name or "", []) if exact else entries
                    for first in range(0, len(candidates), STEP_ENTRIES):
                        some = candidates[first : first + STEP_ENTRIES]
                        matching += [entry for entry in some if acl_filter.matches(entry[1])]
                        yield len(some)
                    described: list[DeleteAclsMatchingAcl] = []
                    for first in range(0, len(matching), STEP_ENTRIES):
                        some = matching[first : first + STEP_ENTRIES]
                        deleted.update((acl_id, None) for acl_id, _ in some)
                        described += [_described(acl) for _, acl in some]
                        yield DESCRIPTION_COST_US * len(some)
                    result.matching_acls = described
            selected += len(result.matching_acls)
            if selected > MAX_SELECTED:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the filters of a request may select at most {MAX_SELECTED} entries in total",
                )
            results.append(result)
            yield FILTER_COST_US
        return Selection(request, list(deleted), DeleteAclsResponse(filter_results=results))

    def decide(self, machine: MetadataMachine, context: RequestContext, request: Any) -> Any:
        """Deletes the selected entries that still exist."""
        selection: Selection = request
        there = machine.image.acls.by_id
        records = [acl_removal_record(acl_id) for acl_id in selection.acl_ids if acl_id in there]
        return machine.outcome(records, selection.response)

    def error(
        self,
        context: RequestContext,
        request: DeleteAclsRequest | Selection,
        code: ErrorCode,
        message: str | None = None,
    ) -> DeleteAclsResponse:
        """Makes a response with the same error code for each filter."""
        code = client_code(code)
        if isinstance(request, Selection):
            request = request.request
        result = DeleteAclsFilterResult(error_code=code, error_message=message or code.message)
        return DeleteAclsResponse(filter_results=[result for _ in request.filters])


def _described(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
