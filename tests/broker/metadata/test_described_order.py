"""DescribeConfigs lists settings in the order of Apache Kafka."""

from __future__ import annotations

from kcore.broker.configs.described_order import GROUP_ORDER, TOPIC_ORDER
from kcore.broker.configs.group_config import GROUP_SETTINGS
from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.broker.metadata.image import ConfigType
from kcore.config.kafka_settings import described_order, kafka_settings, unlisted_settings
from tests.broker.context import NODE_ID, BrokerContext


def java_slot(name: str, slots: int) -> int:
    """Returns the slot of a text in a hash table of Java."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return (code ^ code >> 16) & (slots - 1)


def names(node: BrokerContext, kind: int, resource: str) -> list[str]:
    return [entry.name for entry in node.describe(kind, resource).configs]


def test_the_orders_equal_the_orders_of_javas_hash_tables() -> None:
    """The orders were recorded from Kafka. Settings in one slot of the hash table follow the order of Kafka's
    definitions.
    """
    for order, slots in ((TOPIC_ORDER, 64), (GROUP_ORDER, 32)):
        slots_used = [java_slot(name, slots) for name in order]
        assert slots_used == sorted(slots_used)
    assert set(TOPIC_ORDER) == set(TOPIC_SETTINGS)
    assert set(GROUP_ORDER) == set(GROUP_SETTINGS)
    positions = described_order()
    slots_used = [java_slot(name, 512) for name in sorted(positions, key=positions.__getitem__)]
    assert slots_used == sorted(slots_used)
    assert sorted(positions.values()) == list(range(len(positions)))
    assert set(positions) == set(kafka_settings()) - unlisted_settings()


def test_topics_groups_and_brokers_are_described_in_that_order() -> None:
    """A broker's settings that Kafka does not define come first, and kcore's own settings last."""
    node = BrokerContext()
    node.create("t", configs={"segment.bytes": "1048576"})
    assert names(node, ConfigType.TOPIC, "t") == list(TOPIC_ORDER)
    assert names(node, ConfigType.GROUP, "g") == list(GROUP_ORDER)
    assert node.alter(ConfigType.BROKER, str(NODE_ID), ("an.unknown.setting", 0, "x")).error_code == 0
    listed = names(node, ConfigType.BROKER, str(NODE_ID))
    positions = described_order()
    assert listed[0] == "an.unknown.setting"
    assert listed[1 : 1 + len(positions)] == sorted(positions, key=positions.__getitem__)
    own = listed[1 + len(positions) :]
    assert own
    assert not set(own) & set(positions)
