"""Base class of the APIs of the control plane. The metadata shard decides their requests."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from kcore.broker.data.client_quotas import CONTROLLER_MUTATION_RATE
from kcore.errors import KafkaError
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import Api, RequestContext
from kcore.runtime.pending import gather
from kcore.runtime.shard_state import ShardState
from kcore.runtime.sliced import SLICE_COST_US, step

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from kcore.broker.data.client_quotas import ClientQuotas, Mutations
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

Request = TypeVar("Request")
Response = TypeVar("Response")

ITEMS_PER_STEP = 100
"""Largest number of items that one decision handles; a larger request is decided in parts of this size."""
ITEM_COST_US = 100
"""The cost of deciding one item and of its commit, in microseconds."""

SHARD_REFUSALS = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
"""Error codes of a shard that cannot serve now. `client_code` replaces them with a code that clients expect."""


class ControlApi(Api[Request, Response]):
    """Base of the APIs that read or change the metadata in `decide`.

    Args:
        shard: the metadata shard.
        authorizer: decides about each operation; None allows all.
        opening: returns true while logs of new partitions are being opened; None if the API creates no partitions.
        quotas: limits the partitions that a client creates and deletes; None: there are no quotas.
    """

    __slots__ = ("authorizer", "opening", "quotas", "shard")

    storage_error: ClassVar[ErrorCode] = ErrorCode.NOT_CONTROLLER
    """Error code for a change that the broker could not write. The state is unchanged, and the client may retry."""

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        authorizer: Authorizer | None = None,
        opening: Callable[[], object] | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.shard = shard
        self.authorizer = authorizer
        self.opening = opening
        self.quotas = quotas

    def handle(self, context: RequestContext, request: Request) -> Any:
        """Handles the request in the metadata shard."""
        return self.shard.run(self, context, request)

    def mutations(self, context: RequestContext, strict_since: int) -> Mutations | None:
        """Returns the client's quota of partition changes; None if the client has no quota.

        Args:
            context: the client and the API version of the request.
            strict_since: the first version of the API whose clients understand THROTTLING_QUOTA_EXCEEDED (KIP-599).
        """
        if self.quotas is None:
            return None
        return self.quotas.mutations(context, strict=context.api_version >= strict_since)

    def throttled(self, context: RequestContext, mutations: Mutations | None, response: Response) -> Response:
        """Sets the throttle time of a response, and mutes the connection, if the client is above its quota."""
        if self.quotas is not None and mutations is not None:
            throttle_ms = self.quotas.throttle(CONTROLLER_MUTATION_RATE, context, mutations.throttle_ms)
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        return response

    def in_parts(
        self,
        context: RequestContext,
        request: Request,
        items: Sequence[Any],
        part: Callable[[list[Any]], Request],
        merge: Callable[[list[Any]], Any],
        *,
        key: Callable[[Any], Hashable] | None = None,
        weight: Callable[[Any], int] | None = None,
        cost: int = ITEM_COST_US,
    ) -> Any:
        """Handles a request about many items in parts, so that other requests are served in between.

        Each part is a separate decision, which becomes durable as a whole or not at all. The response has a result for
        each item.

        Args:
            context: the client and the API version of the request.
            request: the whole request.
            items: the items that the request names.
            part: makes a request about the given items.
            merge: makes the response from the parts' responses.
            key: returns the key of an item. Items with equal keys go into the same part, because the decision refuses
                duplicates. None: duplicates may go into different parts.
            weight: returns the number of items that an item counts for; None: each item counts as one.
            cost: the cost of one item, in microseconds.

        Returns:
            The response, or a `Pending` for it.
        """
        size = len(items) if weight is None else sum(weight(item) for item in items)
        if size <= ITEMS_PER_STEP:
            return self.shard.run(self, context, request)

        def join(parts: list[Any]) -> Any:
            return gather(self, context, request, parts, merge)

        work = self._parts(context, items, part, key, weight, cost)
        return self.shard.slices.requests.run(self, context, request, work, join)

    def _parts(
        self,
        context: RequestContext,
        items: Sequence[Any],
        part: Callable[[list[Any]], Request],
        key: Callable[[Any], Hashable] | None,
        weight: Callable[[Any], int] | None,
        cost: int,
    ) -> Work:
        groups: Iterable[list[Any]] = ([item] for item in items)
        if key is not None:
            by_key: dict[Hashable, list[Any]] = {}
            for item in items:
                by_key.setdefault(key(item), []).append(item)
            groups = by_key.values()
        parts: list[Any] = []
        some: list[Any] = []
        size = 0
        for group in groups:
            some += group
            size += len(group) if weight is None else sum(weight(item) for item in group)
            if size >= ITEMS_PER_STEP:
                parts.append(self.shard.run(self, context, part(some)))
                yield cost * size
                some, size = [], 0
        if some:
            parts.append(self.shard.run(self, context, part(some)))
        while self.opening is not None and self.opening():
            yield SLICE_COST_US
        return parts

    def allowed(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Decides if the client may perform the operation."""
        return self.authorizer is None or self.authorizer.allowed(context, operation, resource_type, name)


class PreparedResponse:
    """The last step of a long request: a decision that returns the response that earlier slices have made.

    The shard sends the response when the state in the response is durable.

    Args:
        api: the handler of the request, which makes error responses.
        response: the response of the long request.
    """

    __slots__ = ("_response", "error", "storage_error")

    def __init__(self, api: ControlApi[Any, Any], response: Any) -> None:
        self._response = response
        self.error = api.error
        self.storage_error = api.storage_error

    def decide(self, machine: MetadataMachine, context: RequestContext, request: Any) -> Any:
        """Returns the response."""
        return self._response


class SlicedReadApi(ControlApi[Request, Response]):
    """Base of the APIs that only read the metadata, but whose requests can be long.

    `steps` makes the response, in slices if it takes long. Each slice reads the current metadata.
    """

    __slots__ = ()

    @abstractmethod
    def steps(self, machine: MetadataMachine, context: RequestContext, request: Request) -> Work:
        """Makes the response; yields the cost of each step in microseconds."""

    def handle(self, context: RequestContext, request: Request) -> Any:
        """Makes the response, in slices if the request is long."""
        shard = self.shard
        if shard.state is not ShardState.ACTIVE:
            return shard.run(self, context, request)
        generation = shard.generation

        def finish(response: Any) -> Any:
            # a commit failed: a slice may have seen records that never became durable
            if shard.generation != generation:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return shard.run(cast("Api[Any, Any]", PreparedResponse(self, response)), context, request)

        work = self.steps(shard.machine, context, request)
        return shard.slices.requests.run(self, context, request, work, finish, eager=True)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: Request) -> Any:
        """Makes the whole response in one step, without slices."""
        return step(self.steps(machine, context, request), -1)[1]


def client_code(code: ErrorCode) -> ErrorCode:
    """Replaces the code of a shard that cannot serve now (`SHARD_REFUSALS`) by NOT_CONTROLLER; keeps any other code."""
    return ErrorCode.NOT_CONTROLLER if code in SHARD_REFUSALS else code


def text(code: ErrorCode, message: str | None) -> str | None:
    """Returns the text for a code: null on success, else `message`, else the code's own text.

    The result is null for REQUEST_TIMED_OUT, because Kafka's controller sends this code without a text.
    """
    if message is not None and code != ErrorCode.NONE:
        return message
    return None if code in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT} else code.message
