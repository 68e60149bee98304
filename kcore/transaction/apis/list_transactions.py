"""ListTransactions (key 66), v0-2: lists the transactional ids of this coordinator (KIP-664).

v1 can filter by duration (KIP-994), v2 by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kcore.patterns import MAX_MATCH_STEPS, PatternError, compile_pattern, match_steps
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from kcore.runtime.api import Api
from kcore.runtime.pending import gather
from kcore.runtime.sliced import step
from kcore.transaction.states import BY_NAME, NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard


IDS_PER_PART: Final = 500
ID_COST_US: Final = 5
"""Estimated time in microseconds to list one transactional id, without the time to match the pattern."""
MATCH_STEPS_PER_PART: Final = 500_000
"""Number of steps of pattern matching after which `_Selection.divide` ends a part of the ids."""
MATCH_STEPS_A_MICROSECOND: Final = 50
"""Number of steps of pattern matching that take about a microsecond."""


class ListTransactionsApi(Api[ListTransactionsRequest, ListTransactionsResponse]):
    """Handler of ListTransactions requests.

    Args:
        coordinator: the node's transaction coordinator.
        authorizer: decides about permissions; None allows all requests.
    """

    __slots__ = ("_authorizer", "_coordinator")

    key: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS
    request_type: ClassVar[type] = ListTransactionsRequest
    response_type: ClassVar[type] = ListTransactionsResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def __init__(self, coordinator: TransactionCoordinator, authorizer: Authorizer | None = None) -> None:
        self._coordinator = coordinator
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: ListTransactionsRequest) -> Any:
        """Lists the ids of every shard, in slices. An unknown state filter matches no id; the response names it."""
        selection = _Selection(request)
        if selection.pattern_fault:
            return self.error(context, request, ErrorCode.INVALID_REGULAR_EXPRESSION)
        shards = self._coordinator.shards
        if shards is not None and shards.loading:
            return self.error(context, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        def work() -> Work:
            parts: list[Any] = []
            for shard in shards or ():
                for some, cost in selection.divide(list(shard.machine.transactions)):
                    if selection.pattern_fault:
                        return parts
                    parts.append(shard.run(self, context, _Part(selection, some)))
                    yield cost
            return parts

        def build(responses: list[Any]) -> ListTransactionsResponse:
            states = [state for response in responses for state in response.transaction_states]
            return ListTransactionsResponse(
                error_code=next((response.error_code for response in responses if response.error_code), 0),
                unknown_state_filters=selection.unknown_states,
                transaction_states=states,
            )

        def join(parts: list[Any]) -> Any:
            if selection.pattern_fault:
                return self.error(context, request, ErrorCode.INVALID_REGULAR_EXPRESSION)
            return gather(self, context, request, parts, build)

        slices = None if shards is None else shards.slices
        if slices is None:
            return join(step(work(), -1)[1])
        return slices.requests.run(self, context, request, work(), join)

    def decide(  # type: ignore[override]
        self, machine: TransactionShard, context: RequestContext, request: _Part
    ) -> ListTransactionsResponse:
        """Returns those ids of `request` that match its filters and that the client may DESCRIBE.

        All ids belong to one shard. Omits ids that were removed meanwhile.
        """
        authorizer, wall_ms = self._authorizer, machine.now.wall_ms
        selection, transactions = request.selection, machine.transactions
        states = []
        for transactional_id in request.ids:
            transaction = transactions.get(transactional_id)
            if (
                transaction is not None
                and selection.matches(transactional_id, transaction, wall_ms)
                and (
                    authorizer is None
                    or authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
                )
            ):
                states.append(
                    TransactionState(
                        transactional_id=transactional_id,
                        producer_id=transaction.producer_id,
                        transaction_state=NAMES[transaction.state],
                    )
                )
        return ListTransactionsResponse(transaction_states=states)

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> ListTransactionsResponse:
        """Returns a response with the code and without ids."""
        return ListTransactionsResponse(error_code=code)


class _Part(NamedTuple):
    """Some ids of one shard, and the filters that they must match."""

    selection: _Selection
    ids: list[str]


class _Selection:
    """The filters of a request; an id must match all of them.

    Attributes:
        unknown_states: state filters that are not the name of a state.
        pattern_fault: True if the pattern is invalid, or if its match with one id takes too many steps.
    """

    __slots__ = ("_duration_ms", "_pattern", "_producer_ids", "_states", "pattern_fault", "unknown_states")

    def __init__(self, request: ListTransactionsRequest) -> None:
        names = request.state_filters
        self.unknown_states = [name for name in names if name not in BY_NAME]
        self._states = {BY_NAME[name] for name in names if name in BY_NAME} if names else None
        self._producer_ids = set(request.producer_id_filters) or None
        self._duration_ms = request.duration_filter
        self._pattern: Any = None
        self.pattern_fault = False
        if request.transactional_id_pattern:
            try:
                self._pattern = compile_pattern(request.transactional_id_pattern)
            except PatternError:
                self.pattern_fault = True

    def divide(self, ids: list[str]) -> Iterator[tuple[list[str], int]]:
        """Divides ids into parts. The shard lists each part without serving other requests meanwhile.

        A part ends after `IDS_PER_PART` ids, or earlier if the pattern has used `MATCH_STEPS_PER_PART` matching steps.
        An id that needs more than `MAX_MATCH_STEPS` sets `pattern_fault`, because one match cannot be divided.

        Yields:
            The ids of a part, and its cost in microseconds; at least one part, which may be empty.
        """
        some: list[str] = []
        steps = 0
        for transactional_id in ids:
            if self._pattern is not None:
                added = match_steps(self._pattern, transactional_id)
                self.pattern_fault |= added > MAX_MATCH_STEPS
                steps += added
            some.append(transactional_id)
            if self.pattern_fault or len(some) >= IDS_PER_PART or steps >= MATCH_STEPS_PER_PART:
                yield some, 1 + ID_COST_US * len(some) + steps // MATCH_STEPS_A_MICROSECOND
                some, steps = [], 0
        yield some, 1 + ID_COST_US * len(some) + steps // MATCH_STEPS_A_MICROSECOND

    def matches(self, transactional_id: str, transaction: Any, wall_ms: int) -> bool:
        """Returns True if a transactional id passes all filters."""
        if self._states is not None and transaction.state not in self._states:
            return False
        if self._producer_ids is not None and transaction.producer_id not in self._producer_ids:
            return False
        # An id that never had a transaction has the start time -1, so its duration exceeds every filter, as in Kafka.
        if self._duration_ms >= 0 and wall_ms - transaction.start_ms <= self._duration_ms:
            return False
        return self._pattern is None or self._pattern.fullmatch(transactional_id) is not None
