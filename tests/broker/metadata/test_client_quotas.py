"""AlterClientQuotas and DescribeClientQuotas: quotas are stored, found by filters, and survive a restart (KIP-546)."""

from __future__ import annotations

import pytest

from kcore.broker.metadata.image import MetadataImage
from kcore.broker.metadata.image_parts import image_parts, image_size
from kcore.broker.metadata.partition_range import MetadataBlock
from kcore.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    EntryData,
    OpData,
)
from kcore.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from kcore.protocol.records.metadata import ClientQuotaRecord, QuotaEntityData
from tests.broker.context import NODE_ID, BrokerContext
from tests.broker.metadata.test_create_topics import Only

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]


def entry(entity: Entity, **quotas: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


def alter(node: BrokerContext, *entries: EntryData, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [result.error_code for result in node.call(request, 1).entries]


def found(
    node: BrokerContext, *components: ComponentData, strict: bool = False
) -> list[tuple[Entity, dict[str, float]]]:
    response = node.call(DescribeClientQuotasRequest(components=list(components), strict=strict), 1)
    assert response.error_code == 0
    return [
        ({e.entity_type: e.entity_name for e in row.entity}, {v.key: v.value for v in row.values})
        for row in response.entries
    ]


def test_quotas_are_set_changed_and_removed() -> None:
    """The records have KRaft's format. The same quotas exist after a restart, and after a compaction of the log."""
    node = BrokerContext()
    node.records()
    response = node.call(AlterClientQuotasRequest(entries=[entry({"user": "u"}, producer_byte_rate=1000)]), 1)
    assert response == AlterClientQuotasResponse(
        entries=(
            AlterClientQuotasResponseEntryData(
                error_message=None, entity=(EntityData(entity_type="user", entity_name="u"),)
            ),
        )
    )
    user = [QuotaEntityData(entity_type="user", entity_name="u")]
    assert node.records() == [ClientQuotaRecord(entity=user, key="producer_byte_rate", value=1000.0)]
    assert alter(node, entry({"user": "u"}, producer_byte_rate=1000)) == [0]
    assert node.records() == [], "nothing changed"
    assert alter(node, entry({"user": "u", "client-id": None}, request_percentage=12.5)) == [0]
    both = [
        ({"user": "u"}, {"producer_byte_rate": 1000.0}),
        ({"client-id": None, "user": "u"}, {"request_percentage": 12.5}),
    ]
    assert found(node) == both
    node.restart()
    assert found(node) == both
    records = [record for part in image_parts(node.topics.image, NODE_ID) for record in MetadataBlock(part)]
    assert len(records) == image_size(node.topics.image)
    assert sum(isinstance(record.value.record, ClientQuotaRecord) for record in records) == 2
    node.records()
    assert alter(node, entry({"user": "u"}, producer_byte_rate=None, consumer_byte_rate=None)) == [0]
    assert node.records() == [ClientQuotaRecord(entity=user, key="producer_byte_rate", value=0.0, remove=True)]
    assert found(node) == both[1:]


@pytest.mark.parametrize(
    ("entity", "key", "value", "code"),
    [
        ({}, "producer_byte_rate", 1, 42),
        ({"planet": "earth"}, "producer_byte_rate", 1, 42),
        ({"user": ""}, "producer_byte_rate", 1, 42),
        ({"user": "u", "ip": "192.0.2.7"}, "producer_byte_rate", 1, 42),
        ({"ip": "192.0.2.300"}, "connection_creation_rate", 1, 42),
        ({"ip": "192.0.2.7"}, "connection_creation_rate", 1, 0),
        ({"ip": None}, "connection_creation_rate", 1, 0),
        ({"ip": "::1"}, "connection_creation_rate", 2**31, 42),
        ({"ip": "::1"}, "producer_byte_rate", 1, 42),
        ({"user": "u"}, "connection_creation_rate", 1, 42),
        ({"user": "u"}, "no.such.quota", 1, 42),
        ({"user": "u"}, "producer_byte_rate", 1.5, 42),
        ({"user": "u"}, "producer_byte_rate", -1, 42),
        ({"user": "u"}, "producer_byte_rate", 1e19, 42),
        ({"user": "u"}, "producer_byte_rate", float("nan"), 42),
        ({"user": "u"}, "request_percentage", 0.25, 0),
        ({"user": "u"}, "controller_mutation_rate", 0.5, 0),
    ],
)
def test_invalid_entities_and_values_are_refused(entity: Entity, key: str, value: float, code: int) -> None:
    """A request with validate_only changes nothing. A refused entity does not affect others."""
    node = BrokerContext()
    good = entry({"client-id": "c"}, consumer_byte_rate=7)
    bad = EntryData(entity=entry(entity).entity, ops=[OpData(key=key, value=value)])
    assert alter(node, bad, good, validate_only=True) == [code, 0]
    assert found(node) == []
    assert alter(node, bad, good) == [code, 0]
    expected = [({"client-id": "c"}, {"consumer_byte_rate": 7.0})]
    assert found(node) == ([(entity, {key: value})] if code == 0 else []) + expected


def test_a_duplicate_entity_or_quota_gets_invalid_request() -> None:
    """An entity with a duplicate quota is refused. If an entity occurs twice, Kafka makes the first change and returns
    INVALID_REQUEST.
    """
    node = BrokerContext()
    twice = EntryData(
        entity=entry({"user": "u"}).entity, ops=[OpData(key="producer_byte_rate", value=v) for v in (5, 6)]
    )
    assert alter(node, twice) == [42]
    assert found(node) == []
    assert alter(node, entry({"user": "u"}, producer_byte_rate=5), entry({"user": "u"}, consumer_byte_rate=5)) == [42]
    assert found(node) == [({"user": "u"}, {"producer_byte_rate": 5.0})]


def test_filters_match_exact_default_and_any_names() -> None:
    """A filter matches an exact name, the default, or any name. A strict filter leaves out entities
    with other types.
    """
    node = BrokerContext()
    entities: list[Entity] = [
        {"user": "u"},
        {"client-id": "c", "user": "u"},
        {"client-id": None, "user": "w"},
        {"client-id": "c", "user": None},
        {"client-id": "c"},
    ]
    assert alter(node, *[entry(e, producer_byte_rate=n) for n, e in enumerate(entities, 1)]) == [0] * 5

    def numbers(*components: ComponentData, strict: bool = False) -> list[int]:
        return [entities.index(entity) + 1 for entity, _ in found(node, *components, strict=strict)]

    user, client = (
        lambda kind, name=None: ComponentData(entity_type="user", match_type=kind, match=name),
        lambda kind, name=None: ComponentData(entity_type="client-id", match_type=kind, match=name),
    )
    assert numbers(user(ANY)) == [1, 2, 3, 4]
    assert numbers(user(ANY), strict=True) == [1]
    assert numbers(user(ANY), client(ANY)) == numbers(user(ANY), client(ANY), strict=True) == [2, 3, 4]
    assert numbers(user(EXACT, "u")) == [1, 2]
    assert numbers(client(EXACT, "c"), strict=True) == [5]
    assert numbers(user(DEFAULT), client(EXACT, "c")) == [4]
    assert numbers(client(DEFAULT)) == [3]
    assert numbers() == [1, 2, 3, 4, 5]
    assert numbers(strict=True) == []


def test_alteration_and_description_need_their_permissions() -> None:
    node = BrokerContext()
    node.apis[48].authorizer = node.apis[49].authorizer = Only()
    assert alter(node, entry({"user": "u"}, producer_byte_rate=1)) == [31]
    response = node.call(DescribeClientQuotasRequest(), 1)
    assert (response.error_code, response.entries) == (31, None)
    assert MetadataImage().quotas == node.topics.image.quotas


def test_a_refused_alteration_repeats_the_entries_of_the_request() -> None:
    """The response to a client without the permission has each entry, even if an entity, or a type in it, occurs twice,
    as in Kafka.
    """
    node = BrokerContext()
    node.apis[49].authorizer = Only()
    twice = EntryData(
        entity=[EntityData(entity_type="user", entity_name=name) for name in ("b", "a")],
        ops=[OpData(key="producer_byte_rate", value=1)],
    )
    response = node.call(AlterClientQuotasRequest(entries=[twice, twice]), 1)
    rows = [(row.error_code, [(part.entity_type, part.entity_name) for part in row.entity]) for row in response.entries]
    assert rows == [(31, [("user", "b"), ("user", "a")])] * 2


@pytest.mark.parametrize("address", ["0:0:0:0:0:0:0:1", "0000::0001", "::1"])
def test_an_ipv6_address_has_one_entity_whatever_its_spelling(address: str) -> None:
    node = BrokerContext()
    assert alter(node, entry({"ip": address}, connection_creation_rate=5)) == [0]
    assert found(node) == [({"ip": "::1"}, {"connection_creation_rate": 5.0})]
