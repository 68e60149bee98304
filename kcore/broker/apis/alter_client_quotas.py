"""AlterClientQuotas (key 49, versions 0-1): sets and removes quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code, text
from kcore.broker.metadata.quotas import check_entity, check_quota
from kcore.broker.metadata.records import quota_record
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    EntryData,
    OpData,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcore.broker.metadata.image import MetadataImage
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record

Entity = frozenset[tuple[str, str | None]]
Result = tuple[ErrorCode, str | None]


class AlterClientQuotasApi(ControlApi[AlterClientQuotasRequest, AlterClientQuotasResponse]):
    """Handler of AlterClientQuotas requests. It changes all requested quotas of an entity or none."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.ALTER_CLIENT_QUOTAS
    request_type: ClassVar[type] = AlterClientQuotasRequest
    response_type: ClassVar[type] = AlterClientQuotasResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)

    def handle(self, context: RequestContext, request: AlterClientQuotasRequest) -> Any:
        """Handles the request in the metadata shard, in parts if it names many entities."""
        return self.in_parts(
            context,
            request,
            request.entries,
            lambda some: AlterClientQuotasRequest(entries=some, validate_only=request.validate_only),
            _merged,
            key=lambda entry: frozenset(_parts(entry).items()),
            weight=lambda entry: 1 + len(entry.ops),
        )

    def decide(self, machine: MetadataMachine, context: RequestContext, request: AlterClientQuotasRequest) -> Any:
        """Checks and changes each entity.

        If the request names an entity twice, only the first change is made, and the entity's result is an error.
        """
        if not self.allowed(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results: dict[Entity, Result] = {}
        records: list[Record] = []
        for entry in request.entries:
            parts = _parts(entry)
            entity = frozenset(parts.items())
            if entity in results:
                results[entity] = (ErrorCode.INVALID_REQUEST, "the entity is in the request more than once")
                continue
            try:
                records += _changes(machine.image, parts, entry.ops)
                results[entity] = (ErrorCode.NONE, None)
            except KafkaError as error:
                results[entity] = (error.code, text(error.code, error.message))
        return machine.outcome([] if request.validate_only else records, _response(results))

    def error(
        self, context: RequestContext, request: AlterClientQuotasRequest, code: ErrorCode, message: str | None = None
    ) -> AlterClientQuotasResponse:
        """Makes a response with the same error code for each entry.

        As in Kafka, the response repeats the entries and the parts of their entities as the request has them.
        """
        code = client_code(code)
        return AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasResponseEntryData(
                    error_code=code,
                    error_message=message or code.message,
                    entity=[
                        EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                    ],
                )
                for entry in request.entries
            ]
        )


def _merged(parts: Sequence[AlterClientQuotasResponse]) -> AlterClientQuotasResponse:
    """Returns one response with the entries of all parts."""
    return AlterClientQuotasResponse(entries=[entry for part in parts for entry in part.entries])


def _parts(entry: EntryData) -> dict[str, str | None]:
    """Returns the parts of an entity as a dictionary: type -> name. If a type occurs twice, its last name is used, as
    in Kafka.
    """
    return {part.entity_type: part.entity_name for part in entry.entity}


def _changes(image: MetadataImage, parts: Mapping[str, str | None], ops: Sequence[OpData]) -> list[Record]:
    keys = [op.key for op in ops]
    if len(set(keys)) < len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a quota is in the request more than once")
    entity, known = check_entity(parts)
    present = image.quotas.get(entity, {})
    records = []
    for op in ops:
        if op.remove:
            if op.key in present:
                records.append(quota_record(entity, op.key, None))
            continue
        check_quota(known, op.key, op.value)
        if present.get(op.key) != op.value:
            records.append(quota_record(entity, op.key, op.value))
    return records


def _response(results: Mapping[Entity, Result]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntryData(
                error_code=code,
                error_message=message,
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(entity, key=str)],
            )
            for entity, (code, message) in results.items()
        ]
    )
