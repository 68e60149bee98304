"""Quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.errors import ConfigError, KafkaError
from kcore.node._async.calls import AsyncCalls
from kcore.node.arguments import check_mapping, check_texts
from kcore.node.cluster_types import DEFAULT_ENTITY, QuotaEntity
from kcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kcore.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

ENTITY_TYPES = ("user", "client-id", "ip")
"""The entity types in requests that correspond to the fields of a `QuotaEntity`, in the order of the fields."""
EXACT, DEFAULT = 0, 1  # match types of DescribeClientQuotas


class AsyncQuotas:
    """The quotas of a cluster's clients: `node.quotas`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"AsyncQuotas({str(self._calls.transport)!r})"

    async def describe(
        self, *, user: str | None = None, client_id: str | None = None, ip: str | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the quotas of the clients that match every argument; without arguments, all quotas.

        The value for each `QuotaEntity` is a mapping from Kafka's names of quotas to their limits.

        Args:
            user: the name of a user; "<default>" is the default user.
            client_id: the id that clients send; "<default>" is the default client id.
            ip: a client's address; "<default>" is the default address.

        Raises:
            TypeError: an argument is not a string.
        """
        check_texts(user=user, client_id=client_id, ip=ip)
        components = [
            ComponentData(entity_type=kind, match_type=DEFAULT, match=None)
            if name == DEFAULT_ENTITY
            else ComponentData(entity_type=kind, match_type=EXACT, match=name)
            for kind, name in zip(ENTITY_TYPES, (user, client_id, ip), strict=True)
            if name is not None
        ]

        def read(response: Any) -> dict[QuotaEntity, dict[str, float]]:
            if response.error_code:
                raise KafkaError.of(response.error_code, response.error_message)
            return {
                _entity(row.entity): {each.key: each.value for each in row.values} for row in response.entries or ()
            }

        return await self._calls.call(DescribeClientQuotasRequest(components=components), read)

    async def set(
        self,
        limits: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
    ) -> None:
        """Changes quotas of clients: `node.quotas.set({"producer_byte_rate": 1_000_000}, user="alice")`.

        Args:
            limits: quota -> its new value; None removes the quota. A user, a client id, or both can have
                "producer_byte_rate", "consumer_byte_rate", "request_percentage" and "controller_mutation_rate". An
                address can have "connection_creation_rate".
            user: the name of a user; "<default>" is the default user.
            client_id: the id that clients send; "<default>" is the default client id.
            ip: the client's address; "<default>" is the default address.

        Raises:
            ConfigError: the call names neither a user nor a client id nor an address.
            InvalidRequestError: the named clients cannot have the quota, or the value of a quota is not valid.
            TypeError, ValueError: an argument or a quota has a wrong type.
        """
        check_mapping("limits", limits)
        check_texts(user=user, client_id=client_id, ip=ip)
        entity = [
            EntityData(entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else name)
            for kind, name in zip(ENTITY_TYPES, (user, client_id, ip), strict=True)
            if name is not None
        ]
        if not entity:
            raise ConfigError(
                f"a quota needs user, client_id or ip; {DEFAULT_ENTITY!r} stands for all users, client ids or "
                "addresses without a quota of their own"
            )
        changes = [
            OpData(key=key, value=0.0 if value is None else _limit(key, value), remove=value is None)
            for key, value in limits.items()
        ]

        def read(response: Any) -> None:
            (row,) = response.entries
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message)

        await self._calls.call(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=changes)]), read)


def _limit(key: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"limits: the quota {key!r} is {value!r}; valid: a number, or None to remove it") from None


def _entity(rows: Any) -> QuotaEntity:
    names = {row.entity_type: DEFAULT_ENTITY if row.entity_name is None else row.entity_name for row in rows}
    return QuotaEntity(*(names.get(kind) for kind in ENTITY_TYPES))
