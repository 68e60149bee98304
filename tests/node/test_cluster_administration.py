"""Deletion of records, settings of brokers, log directories and quotas."""

from __future__ import annotations

from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.node.cluster_types import DEFAULT_ENTITY, BrokerDescription, QuotaEntity
from kcore.node.types import TopicPartition
from kcore.protocol.messages.delete_records import DeleteRecordsRequest
from tests.kit import wait_until


def only_broker(node: kcore.Node) -> BrokerDescription:
    (broker,) = node.brokers.list()
    return broker


def test_records_before_an_offset_are_deleted(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2)
    for partition in range(2):
        topic.append_many(list("abcd"), partition=partition)
    assert topic.delete_records({0: 3}) == {0: 3}
    assert topic.start_offsets() == {0: 3, 1: 0}
    assert [record.value for record in topic.read(0, 3)] == [b"d"]
    with pytest.raises(errors.OffsetOutOfRangeError):
        topic.read(0, 2)
    topic_partitions = [TopicPartition(name, number) for number in range(2)]
    assert node.topics.delete_records({topic_partitions[1]: None, topic_partitions[0]: 1}) == {
        topic_partitions[0]: 3,
        topic_partitions[1]: 4,
    }
    assert topic.start_offsets() == {0: 3, 1: 4}
    with pytest.raises(errors.PartitionErrors) as refused:
        topic.delete_records({0: 99, 1: 4})
    assert {key: type(error) for key, error in refused.value.errors.items()} == {
        topic_partitions[0]: errors.OffsetOutOfRangeError
    }
    with pytest.raises(errors.OffsetOutOfRangeError):
        topic.delete_records({0: 99})
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        topic.delete_records({7: 0})
    with pytest.raises(ValueError, match=rf"^the offset of {name}-0 is -1; valid: 0 or more, or None for all records"):
        topic.delete_records({0: -1})
    wrong: Any = {1: 1.5}
    with pytest.raises(TypeError, match=rf"^the offset of {name}-1 is 1\.5; valid: an int, or None for all records"):
        topic.delete_records(wrong)
    assert node.topics.delete_records({}) == {}


def test_a_repeated_deletion_keeps_records_that_were_appended_after_the_first_one(
    node: kcore.Node, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`delete_records` with the offset None deletes up to the end of the log at the time of the call.

    The response to the first request is lost, and then a record is appended. The repeated request must keep this
    record.
    """
    topic = node.topics.create(name, 2)
    topic.append_many(["a", "b"], partition=0)
    transport = node._calls.transport
    send = transport.send
    sent: list[DeleteRecordsRequest] = []

    def lossy(request: Any, *arguments: Any, **options: Any) -> Any:
        response = send(request, *arguments, **options)
        if isinstance(request, DeleteRecordsRequest):
            sent.append(request)
            if len(sent) == 1:
                topic.append("c", partition=0)
                raise errors.ConnectionClosedError("the response is lost")
        return response

    monkeypatch.setattr(transport, "send", lossy)
    assert topic.delete_records({0: None, 1: None}) == {0: 2, 1: 0}
    assert sent[1] == sent[0]
    assert [record.value for record in topic.read(0, 2)] == [b"c"]


def test_records_of_a_compacted_topic_are_not_deleted(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1, config={"cleanup.policy": "compact"})
    topic.append("a", key="k")
    with pytest.raises(errors.PolicyViolationError):
        topic.delete_records({0: 1})


def test_the_cluster_is_described(node: kcore.Node) -> None:
    described = node.describe_cluster()
    broker = only_broker(node)
    assert described.brokers == (broker,)
    assert (described.cluster_id, described.controller) == (node.cluster_id(), broker.id)


def test_settings_of_a_broker_are_read_and_changed(node: kcore.Node) -> None:
    broker = node.brokers[only_broker(node).id]
    before = broker.config()
    assert int(before["message.max.bytes"] or "") > 700_000
    assert set(broker.config(own=True)) < set(before)
    broker.set_config({"message.max.bytes": 700_000})
    try:
        wait_until(lambda: broker.config(own=True).get("message.max.bytes") == "700000", "the setting of the broker")
        assert broker.config()["message.max.bytes"] == "700000"
        assert "message.max.bytes" not in node.brokers.config()
    finally:
        broker.set_config({"message.max.bytes": None})
    wait_until(lambda: broker.config()["message.max.bytes"] == before["message.max.bytes"], "the default")
    with pytest.raises(errors.InvalidRequestError):
        broker.set_config({"no.such.setting.max.bytes": None, "node.id": 7})


def test_settings_of_all_brokers_are_read_and_changed(node: kcore.Node) -> None:
    broker = node.brokers[only_broker(node).id]
    node.brokers.set_config({"message.max.bytes": 800_000})
    try:
        wait_until(lambda: node.brokers.config().get("message.max.bytes") == "800000", "the setting")
        wait_until(lambda: broker.config()["message.max.bytes"] == "800000", "the setting of the broker")
        assert "message.max.bytes" not in broker.config(own=True)
    finally:
        node.brokers.set_config({"message.max.bytes": None})
    wait_until(lambda: "message.max.bytes" not in node.brokers.config(), "the default")


def test_levels_of_loggers_are_read_and_changed(node: kcore.Node) -> None:
    broker = node.brokers[only_broker(node).id]
    logger = next(each for each in broker.loggers() if each not in ("root", "kcore"))
    broker.set_loggers({logger: "ERROR"})
    assert broker.loggers()[logger] == "ERROR"
    broker.set_loggers({logger: None})
    with pytest.raises(errors.KafkaError):
        broker.set_loggers({"no.such.logger": "INFO"})


def test_log_directories_have_the_sizes_of_partitions(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 2).append("x" * 10_000, partition=1)
    (directory,) = node.brokers[only_broker(node).id].log_dirs()
    assert directory.error is None
    assert 10_000 <= directory.partitions[name, 1] < 20_000
    assert directory.partitions[name, 0] < 10_000
    assert (
        directory.total_bytes is None
        or directory.usable_bytes is None
        or (directory.total_bytes >= directory.usable_bytes)
    )


def test_a_broker_that_does_not_exist_is_an_error(node: kcore.Node) -> None:
    missing = node.brokers[4_711]
    for call in (missing.config, missing.log_dirs, missing.loggers, lambda: missing.set_config({})):
        with pytest.raises(errors.BrokerNotAvailableError, match="no live broker has the id 4711"):
            call()


def test_quotas_are_set_described_and_removed(node: kcore.Node, name: str) -> None:
    alice, pair, default = QuotaEntity(name), QuotaEntity(name, "app"), QuotaEntity(name, DEFAULT_ENTITY)
    node.quotas.set({"producer_byte_rate": 1_000_000, "consumer_byte_rate": 2e6}, user=name)
    node.quotas.set({"request_percentage": 12.5}, user=name, client_id="app")
    node.quotas.set({"producer_byte_rate": 5}, user=name, client_id="<default>")
    expected = {
        alice: {"producer_byte_rate": 1_000_000.0, "consumer_byte_rate": 2_000_000.0},
        pair: {"request_percentage": 12.5},
        default: {"producer_byte_rate": 5.0},
    }
    wait_until(lambda: node.quotas.describe(user=name) == expected, "the quotas of the user")
    assert node.quotas.describe(user=name, client_id="app") == {pair: expected[pair]}
    assert node.quotas.describe(user=name, client_id=DEFAULT_ENTITY) == {default: expected[default]}
    assert node.quotas.describe().items() >= expected.items()
    node.quotas.set({"producer_byte_rate": None}, user=name)
    wait_until(lambda: node.quotas.describe(user=name)[alice] == {"consumer_byte_rate": 2e6}, "one quota is left")
    node.quotas.set({"consumer_byte_rate": None}, user=name)
    node.quotas.set({"request_percentage": None}, user=name, client_id="app")
    node.quotas.set({"producer_byte_rate": None}, user=name, client_id=DEFAULT_ENTITY)
    wait_until(lambda: node.quotas.describe(user=name) == {}, "no quota is left")


def test_wrong_quotas_are_refused(node: kcore.Node, name: str) -> None:
    with pytest.raises(errors.InvalidRequestError):
        node.quotas.set({"no_such_quota": 1}, user=name)
    with pytest.raises(errors.ConfigError, match=r"^a quota needs user, client_id or ip; '<default>' stands for all"):
        node.quotas.set({"producer_byte_rate": 1})


def test_connections_of_an_address_have_a_quota(node: kcore.Node) -> None:
    node.quotas.set({"connection_creation_rate": 7}, ip="192.0.2.7")
    expected = {QuotaEntity(ip="192.0.2.7"): {"connection_creation_rate": 7.0}}
    wait_until(lambda: node.quotas.describe(ip="192.0.2.7") == expected, "the quota")
    node.quotas.set({"connection_creation_rate": None}, ip="192.0.2.7")


async def test_administration_on_an_event_loop(anode: kcore.AsyncNode, name: str) -> None:
    topic = await anode.topics.create(name, 1)
    await topic.append_many(list("abc"))
    assert await topic.delete_records({0: 2}) == {0: 2}
    (broker,) = (await anode.describe_cluster()).brokers
    assert await anode.brokers.list() == [broker]
    (directory,) = await anode.brokers[broker.id].log_dirs()
    assert (name, 0) in directory.partitions
    assert (await anode.brokers[broker.id].config())["message.max.bytes"]
    assert isinstance(await anode.quotas.describe(), dict)
