"""DescribeClientQuotas (key 48, versions 0-1): the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import SlicedReadApi, client_code
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work

EXACT, DEFAULT, ANY = 0, 1, 2
STEP_ENTITIES = 500
"""Number of entities that one step compares with the filter."""
ENTITY_COST_US = 3
"""The cost of comparing one entity with the filter and describing it, in microseconds."""
ENTITY_TYPES = frozenset({"user", "client-id", "ip"})


class DescribeClientQuotasApi(SlicedReadApi[DescribeClientQuotasRequest, DescribeClientQuotasResponse]):
    """Handler of DescribeClientQuotas requests."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS
    request_type: ClassVar[type] = DescribeClientQuotasRequest
    response_type: ClassVar[type] = DescribeClientQuotasResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)

    def steps(self, machine: MetadataMachine, context: RequestContext, request: DescribeClientQuotasRequest) -> Work:
        """Checks the filter and lists the matching entities."""
        if not self.allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        _check(request.components)
        entities = list(machine.image.quotas.items())
        entries: list[EntryData] = []
        for first in range(0, len(entities), STEP_ENTITIES):
            some = entities[first : first + STEP_ENTITIES]
            entries += [
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in quotas.items()],
                )
                for entity, quotas in some
                if _matches(dict(entity), request)
            ]
            yield ENTITY_COST_US * len(some)
        return DescribeClientQuotasResponse(entries=entries)

    def error(
        self, context: RequestContext, request: DescribeClientQuotasRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeClientQuotasResponse:
        """Makes a response with the error code, its text and null entries."""
        code = client_code(code)
        return DescribeClientQuotasResponse(error_code=code, error_message=message or code.message, entries=None)


def _matches(entity: dict[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    for component in request.components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        if component.match_type != ANY and name != (component.match if component.match_type == EXACT else None):
            return False
    return True


def _check(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity needs a type")
        if kind in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is in the filter more than once")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {kind!r}")
        if component.match_type not in {EXACT, DEFAULT, ANY}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}")
        if (component.match is None) == (component.match_type == EXACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "an exact match needs a name; other match types must not have one"
            )
        seen.add(kind)
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ip entity cannot be combined with user or client-id")
