"""Protocol faults, each as a real client sees it."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from hypothesis import given
from hypothesis import strategies as st

import kcore
from kcore.errors import GroupAuthorizationFailedError, KafkaError, KcoreError, NotCoordinatorError
from kcore.protocol.api_keys import ApiKey, api_name, request_class
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.schema import Request
from kcore.served_apis import SERVED_APIS
from kcore.testing import Broker, RandomFaults, faults
from kcore.testing.requests import groups_of, may_name, topics_of, transactional_ids_of
from tests.protocol.strategies import KIND_NAMES, all_messages, examples, struct_strategy
from tests.testing.clients import confluent_consumer, confluent_producer, fill, poll, poll_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.structs import OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.kcore(topics={"t": 2, "u": 1})


def python_consumer(broker: Broker, **options: object) -> kafka.KafkaConsumer:
    return kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **{"group_id": "g", "retry_backoff_ms": 10, "reconnect_backoff_ms": 10, **options},
    )


def values(broker: Broker, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in broker.node.topics[topic].read(partition, 0)]


def add_to_a_transaction(node: kcore.Node) -> None:
    """Sends the request of clients before KIP-890."""
    node.transaction("x").init()
    topic = AddPartitionsToTxnTopic(name="t", partitions=[0])
    node.send(AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=[topic]), 3)


# ---- fail


def test_fail_refuses_the_next_requests_and_then_no_more(kcore_broker: Broker) -> None:
    fault = kcore_broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", times=2)
    consumer = python_consumer(kcore_broker)
    consumer.assign([TopicPartition("t", 0)])
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5, "", -1)}
    for _ in range(2):
        with pytest.raises(kafka.errors.KafkaError, match="InvalidCommitOffsetSize"):
            consumer.commit(offsets)
    assert kcore_broker.committed("g") == {}
    consumer.commit(offsets)
    consumer.close()
    kcore_broker.assert_committed("g", {("t", 0): 5})
    assert (fault.applied, kcore_broker.active_faults) == (2, [])


def test_fail_skips_requests_before_it_applies(kcore_broker: Broker) -> None:
    kcore_broker.fail("Produce", "RECORD_LIST_TOO_LARGE", skip=1)
    errors = []
    producer = confluent_producer(kcore_broker, enable_idempotence=False, message_send_max_retries=0)
    for value in ("a", "b", "c"):
        producer.produce("t", value, partition=0, on_delivery=lambda error, _: errors.append(error and error.name()))
        producer.flush(10)
    assert errors == [None, "RECORD_LIST_TOO_LARGE", None]
    assert values(kcore_broker) == [b"a", b"c"]


def test_the_error_may_depend_on_the_request(kcore_broker: Broker) -> None:
    kcore_broker.fail(
        "Produce", lambda request: "INVALID_RECORD" if request.topic_data[0].name == "u" else None, times=None
    )
    producer = confluent_producer(kcore_broker, enable_idempotence=False)
    errors: dict[str, str | None] = {}
    for topic in ("t", "u"):
        producer.produce(topic, b"v", on_delivery=lambda e, m: errors.update({m.topic(): e and e.name()}))
        producer.flush(10)
    assert errors == {"t": None, "u": "INVALID_RECORD"}


@pytest.mark.parametrize(
    ("which", "refused"),
    [
        ({"group": "a"}, [("a", "one")]),
        ({"client_id": "one"}, [("a", "one")]),
        ({"topic": "u"}, [("b", "two")]),
        ({"principal": "User:ANONYMOUS"}, [("a", "one"), ("b", "two")]),
        ({"principal": "User:alice"}, []),
        ({"where": lambda request: request.group_id > "a"}, [("b", "two")]),
        ({"group": "a", "client_id": "two"}, []),
    ],
)
def test_a_fault_applies_to_the_requests_that_match_its_filters(
    kcore_broker: Broker, which: dict[str, object], refused: list[tuple[str, str]]
) -> None:
    kcore_broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", times=None, **which)
    found = []
    for group, client, topic in (("a", "one", "t"), ("b", "two", "u")):
        consumer = confluent_consumer(kcore_broker, group, client_id=client)
        try:
            consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
        except confluent_kafka.KafkaException:
            found.append((group, client))
        consumer.close()
    assert found == refused


def test_the_topics_of_a_fetch_session_are_those_of_its_requests(kcore_broker: Broker) -> None:
    requests: list[Any] = []

    def note(request: Any) -> bool:
        requests.append(request)
        return False

    kcore_broker.delay("Fetch", 0, times=None, where=note)
    delayed = kcore_broker.delay("Fetch", 0.001, times=None, topic="t")
    other = kcore_broker.delay("Fetch", 0.001, times=None, topic="absent")
    consumer = python_consumer(kcore_broker, fetch_max_wait_ms=1)
    consumer.assign([TopicPartition("t", 0), TopicPartition("u", 0)])
    while delayed.applied < 4:
        consumer.poll(10)
    consumer.close()
    named = [[topic.topic for topic in request.topics] for request in requests[:4]]
    assert len(named[0]) == 2
    assert named[1:] == [[], [], []]
    assert (delayed.seen, other.seen) == (len(requests), 0)


def test_the_topics_of_a_share_session_are_those_of_its_requests(kcore_broker: Broker) -> None:
    delayed = kcore_broker.delay("ShareFetch", 0.001, times=None, topic="t")
    other = kcore_broker.delay("ShareFetch", 0.001, times=None, topic="u")
    with kcore.connect(kcore_broker.bootstrap) as node, node.queue("t", group="s") as queue:
        while delayed.applied < 4:
            assert queue.get(0.05) is None
    assert other.seen == 0


def test_aiokafka_repeats_a_retriable_error(kcore_broker: Broker) -> None:
    fault = kcore_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)

    async def send() -> int:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kcore_broker.bootstrap, retry_backoff_ms=1)
        async with producer:
            return (await producer.send_and_wait("t", b"v", partition=0)).offset

    assert asyncio.run(send()) == 0
    assert (fault.applied, values(kcore_broker)) == (2, [b"v"])


@pytest.mark.parametrize(
    ("api", "error", "which", "kind", "message"),
    [
        ("OffsetComit", 3, {}, ValueError, "'OffsetComit' is not an API of Kafka; did you mean 'OffsetCommit'?"),
        ("offset_commits", 3, {}, ValueError, "'offset_commits' is not an API of Kafka; did you mean 'OffsetCommit'?"),
        ("Zzz", 3, {}, ValueError, "'Zzz' is not an API of Kafka; valid: names such as Produce, Fetch"),
        (
            "Fetch",
            "NOT_COORDINATR",
            {},
            ValueError,
            "'NOT_COORDINATR' is not an error of Kafka; did you mean 'NOT_COORDIN",
        ),
        ("Fetch", "NotCoordinatorError", {}, ValueError, "is not an error of Kafka; did you mean 'NOT_COORDINATOR'?"),
        ("Fetch", 9999, {}, ValueError, "9999 is not an error of Kafka; valid: names such as NOT_COORDINATOR"),
        ("Fetch", KafkaError, {}, ValueError, "is not an error of Kafka; valid: names such as NOT_COORDINATOR"),
        ("Fetch", 3, {"topics": "t"}, TypeError, "fail() has no argument 'topics'; did you mean 'topic'?"),
        (
            "Fetch",
            3,
            {"seconds": 1},
            TypeError,
            "fail() has no argument 'seconds'; valid: times, skip, error, ",
        ),
        ("Vote", 3, {}, ValueError, "fail('Vote') would never apply: a broker of kcore does not serve this API"),
        (
            "Metadata",
            3,
            {"group": "g"},
            ValueError,
            "fail('Metadata', group='g') would never apply: requests of this API have no group for the filter; valid: "
            "client_id, principal or where",
        ),
        ("JoinGroup", 16, {"topic": "t"}, ValueError, "fail('JoinGroup', topic='t') would never apply"),
        ("Fetch", 3, {"transactional_id": "x"}, ValueError, "fail('Fetch', transactional_id='x') would never apply"),
        (["OffsetCommit", "Metadata"], 3, {"group": "g"}, ValueError, "fail('Metadata', group='g') would never apply"),
    ],
)
def test_wrong_names_are_refused_at_once(
    kcore_broker: Broker, api: Any, error: Any, which: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        kcore_broker.fail(api, error, **which)
    assert kcore_broker.active_faults == []


def test_a_throttle_needs_an_api_with_a_throttle_time(kcore_broker: Broker) -> None:
    with pytest.raises(ValueError, match="responses of this API have no throttle time"):
        kcore_broker.throttle("DescribeQuorum", 1)


def test_a_filter_without_an_api_applies_to_the_requests_that_name_its_object(kcore_broker: Broker) -> None:
    fault = kcore_broker.fail("*", "GROUP_AUTHORIZATION_FAILED", group="g", times=None)
    with kcore.connect(kcore_broker.bootstrap) as node:
        assert node.topics.list()
        with pytest.raises(GroupAuthorizationFailedError):
            node.group("g").committed()
        with pytest.raises(GroupAuthorizationFailedError):
            node.group("g").config()
    assert fault.applied == 2


@pytest.mark.parametrize(
    ("api", "which", "call"),
    [
        ("FindCoordinator", {"transactional_id": "x"}, lambda node: node.transaction("x").init()),
        ("DescribeTransactions", {"transactional_id": "x"}, lambda node: node.transactions.terminate("x")),
        ("DescribeConfigs", {"topic": "t"}, lambda node: node.topics["t"].config()),
        ("AddPartitionsToTxn", {"topic": "t", "transactional_id": "x"}, add_to_a_transaction),
        ("ConsumerGroupHeartbeat", {"topic": "t"}, lambda node: node.group("g").join("t").start()),
    ],
)
def test_a_filter_finds_names_in_every_field_of_a_request(
    kcore_broker: Broker, api: str, which: dict[str, str], call: Callable[[kcore.Node], object]
) -> None:
    fault = kcore_broker.fail(api, "CLUSTER_AUTHORIZATION_FAILED", **which)
    with kcore.connect(kcore_broker.bootstrap) as node, suppress(KafkaError, KcoreError):
        call(node)
    assert fault.applied == 1


def test_an_error_may_be_a_class_of_kcore(kcore_broker: Broker) -> None:
    fault = kcore_broker.fail("OffsetCommit", NotCoordinatorError, times=2, group="g", topic="t", client_id="c")
    assert fault.fault.error == "NOT_COORDINATOR"
    assert repr(fault) == (
        "<injected: fail OffsetCommit with NOT_COORDINATOR (group g, topic t, client_id c): 0 applied>"
    )


def test_disconnect_now_takes_only_the_client(kcore_broker: Broker) -> None:
    with pytest.raises(TypeError, match=r"disconnect\(\) without an API takes only client_id, not client, times"):
        kcore_broker.disconnect(client="worker-1", times=2)


# ---- delay, hold


def test_delay_follows_the_brokers_clock(kcore_broker: Broker) -> None:
    kcore_broker.clock.freeze()
    kcore_broker.delay("Produce", 3600)
    delivered = threading.Event()
    producer = confluent_producer(kcore_broker)
    producer.produce("t", b"v", partition=0, on_delivery=lambda *_: delivered.set())
    fault = kcore_broker.active_faults[0] if kcore_broker.active_faults else None
    kcore_broker.wait_for(lambda b: not b.active_faults)
    assert fault is None or fault.applied == 1
    kcore_broker.clock.advance(3599)
    assert values(kcore_broker) == []
    kcore_broker.clock.advance(1)
    assert producer.flush(10) == 0
    assert delivered.is_set()
    assert values(kcore_broker) == [b"v"]


@pytest.mark.parametrize("after", [False, True])
def test_a_held_request_or_response_waits_for_its_release(kcore_broker: Broker, after: bool) -> None:
    kcore_broker.hold("Produce", after=after)
    producer = confluent_producer(kcore_broker)
    producer.produce("t", b"v", partition=0)
    (held,) = kcore_broker.wait_for(lambda b: b.held)
    assert held.request.topic_data[0].name == "t"
    assert values(kcore_broker) == ([b"v"] if after else [])
    with pytest.raises(AssertionError, match="held: ProduceRequest of rdkafka"):
        kcore_broker.assert_at_rest()
    assert kcore_broker.release() == 1
    assert producer.flush(10) == 0
    assert values(kcore_broker) == [b"v"]
    producer.produce("t", b"w", partition=0)  # the release also ended the fault
    assert producer.flush(10) == 0
    kcore_broker.assert_at_rest()


def test_release_may_be_limited_to_one_client(kcore_broker: Broker) -> None:
    kcore_broker.hold("Produce")
    producers = {name: confluent_producer(kcore_broker, client_id=name) for name in ("one", "two")}
    for name, producer in producers.items():
        producer.produce("t", name, partition=0)
    kcore_broker.wait_for(lambda b: len(b.held) == 2)
    assert kcore_broker.release(client_id="two", keep_holding=True) == 1
    assert producers["two"].flush(10) == 0
    assert values(kcore_broker) == [b"two"]
    assert kcore_broker.release() == 1
    assert producers["one"].flush(10) == 0
    assert values(kcore_broker) == [b"two", b"one"]


# ---- disconnect, refuse


def test_disconnect_closes_the_connection_instead_of_serving_the_request(kcore_broker: Broker) -> None:
    kcore_broker.disconnect("Produce")
    producer = confluent_producer(kcore_broker, enable_idempotence=False, retry_backoff_ms=1)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0
    assert values(kcore_broker) == [b"v"]


def test_a_lost_response_makes_a_plain_producer_store_twice(kcore_broker: Broker) -> None:
    kcore_broker.disconnect("Produce", after=True)
    producer = confluent_producer(kcore_broker, enable_idempotence=False, retry_backoff_ms=1)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0
    assert values(kcore_broker) == [b"v", b"v"]


def test_a_lost_response_does_not_harm_an_idempotent_producer(kcore_broker: Broker) -> None:
    kcore_broker.disconnect("Produce", after=True)
    producer = confluent_producer(kcore_broker, enable_idempotence=True, retry_backoff_ms=1)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0
    assert values(kcore_broker) == [b"v"]


def test_disconnect_without_an_api_closes_the_connections_of_one_client(kcore_broker: Broker) -> None:
    kcore_broker.hold("Produce")
    producers = {
        name: confluent_producer(kcore_broker, client_id=name, enable_idempotence=False, retry_backoff_ms=1)
        for name in ("one", "two")
    }
    for count, (name, producer) in enumerate(producers.items(), 1):
        producer.produce("t", name, partition=0)
        kcore_broker.wait_for(lambda b, count=count: len(b.held) == count)
    kcore_broker.disconnect(client_id="one")
    kcore_broker.wait_for(lambda b: len(b.held) == 3)  # the first client sends its request again
    kcore_broker.release()
    assert [producer.flush(10) for producer in producers.values()] == [0, 0]
    assert values(kcore_broker) == [b"one", b"two", b"one"]


def test_refused_connections_are_accepted_again_on_request(kcore_broker: Broker) -> None:
    host, _, port = kcore_broker.bootstrap.rpartition(":")
    kcore_broker.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    kcore_broker.accept_connections()
    producer = confluent_producer(kcore_broker)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0


# ---- corrupt, throttle


def test_corrupt_records_fail_their_checksum(kcore_broker: Broker) -> None:
    fill(kcore_broker, "t", 1)
    kcore_broker.corrupt("Fetch", where=lambda request: True)

    async def read() -> tuple[str, bytes | None]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=kcore_broker.bootstrap, auto_offset_reset="earliest", check_crcs=True
        )
        async with consumer:
            consumer.assign([aiokafka.TopicPartition("t", 0)])
            try:
                await consumer.getone()
            except AioKafkaError as error:
                return type(error).__name__, (await consumer.getone()).value
            raise AssertionError("the damaged record was delivered")

    assert asyncio.run(read()) == ("CorruptRecordException", b"0")


def test_a_corrupt_response_is_truncated(kcore_broker: Broker) -> None:
    fault = kcore_broker.corrupt("Produce")
    producer = confluent_producer(kcore_broker, enable_idempotence=True, retry_backoff_ms=1)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0
    assert (fault.applied, values(kcore_broker)) == (1, [b"v"])


def test_throttle_puts_a_throttle_time_into_responses(kcore_broker: Broker) -> None:
    throttled: list[int] = []
    kcore_broker.throttle("Produce", 0.25)
    producer = confluent_producer(
        kcore_broker, throttle_cb=lambda event: throttled.append(round(event.throttle_time * 1000))
    )
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0
    kcore_broker.wait_for(lambda _: producer.poll(0.01) is not None and throttled)
    assert throttled[0] == 250


# ---- scripts, random faults


def test_a_script_applies_its_faults_in_order(kcore_broker: Broker) -> None:
    kcore_broker.script(
        faults.fail("Produce", "INVALID_RECORD"),
        faults.fail("Produce", "RECORD_LIST_TOO_LARGE", times=2),
        faults.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE"),
    )
    producer = confluent_producer(kcore_broker, enable_idempotence=False)
    consumer = confluent_consumer(kcore_broker)
    consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 1)], asynchronous=False)  # not its turn yet
    errors = []
    for _ in range(4):
        producer.produce("t", b"v", partition=0, on_delivery=lambda error, _: errors.append(error and error.name()))
        producer.flush(10)
    assert errors == ["INVALID_RECORD", "RECORD_LIST_TOO_LARGE", "RECORD_LIST_TOO_LARGE", None]
    with pytest.raises(confluent_kafka.KafkaException, match="INVALID_COMMIT_OFFSET_SIZE"):
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 2)], asynchronous=False)
    consumer.close()
    with pytest.raises(ValueError, match="only the last fault"):
        kcore_broker.script(faults.hold("Fetch"), faults.fail("Produce", "INVALID_RECORD"))


def test_random_faults_repeat_with_their_seed() -> None:
    first, second, other = (RandomFaults(seed, probability=0.5) for seed in (7, 7, 8))
    keys = [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT] * 20
    drawn = [
        [(fault := each.draw(key, lambda _: True)) and fault.describe() for key in keys]
        for each in (first, second, other)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert first.injected == [text for text in drawn[0] if text]


def test_an_idempotent_producer_survives_random_faults(
    kcore_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = kcore_broker.random_faults(11, probability=0.3)
    assert "random faults with seed 11" in capsys.readouterr().out
    producer = confluent_producer(kcore_broker, enable_idempotence=True, retry_backoff_ms=1)
    for n in range(30):
        producer.produce("t", str(n), partition=0)
        assert producer.flush(20) == 0
    kcore_broker.clear_faults()
    assert values(kcore_broker) == [str(n).encode() for n in range(30)]
    assert len(chosen.injected) > 3


# ---- cost


def test_apis_without_faults_keep_their_own_functions(kcore_broker: Broker) -> None:
    producer = confluent_producer(kcore_broker)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0

    def functions() -> dict[str, tuple[bool, bool]]:
        return kcore_broker.call(
            lambda _: {
                type(entry.api).__name__: (entry.fast == entry.api.fast, entry.handle == entry.api.handle)
                for entry in kcore_broker._interceptor._dispatch
            }
        )

    assert functions()["ProduceApi"] == (True, True)
    assert functions()["MetadataApi"] == (True, True)
    fault = kcore_broker.fail("Produce", "INVALID_RECORD")
    assert functions()["ProduceApi"][1] is False
    assert functions()["MetadataApi"] == (True, True)
    kcore_broker.clear_faults(fault)
    assert functions()["ProduceApi"] == (True, True)


def test_faults_may_be_set_from_many_threads(kcore_broker: Broker) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: kcore_broker.fail("Produce", "INVALID_RECORD", client_id=str(n)), range(50)))
    assert len(kcore_broker.active_faults) == 50
    kcore_broker.clear_faults()
    assert kcore_broker.active_faults == []


def test_a_rebalance_waits_while_its_requests_are_held(kcore_broker: Broker) -> None:
    """The test holds a SyncGroup back, so the group waits in its sync phase until the release."""
    kcore_broker.hold("SyncGroup", group="g")
    consumer = confluent_consumer(kcore_broker)
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: kcore_broker.held)
    assert kcore_broker.groups["g"].state == "CompletingRebalance"
    kcore_broker.release(group="g")
    fill(kcore_broker, "t", 1)
    poll(consumer, 1)
    assert kcore_broker.groups["g"].state == "Stable"
    consumer.close()


# ---- properties of requests


NAMES: dict[str, Callable[[Any], Iterable[str]]] = {
    "group": groups_of,
    "topic": lambda request: topics_of(request, lambda topic_id: "found"),
    "transactional_id": transactional_ids_of,
}
"""Attribute of a filter -> the function that reads the names of a request."""

REQUESTS = [cls for cls in all_messages() if issubclass(cls, Request)]


@examples(200, 5_000)
@given(st.sampled_from(REQUESTS), st.data())
def test_the_properties_of_every_request_can_be_read(cls: type[Request[object]], data: st.DataObject) -> None:
    request = data.draw(struct_strategy(cls))
    for attribute, names_of in NAMES.items():
        names = list(names_of(request))
        assert all(isinstance(name, str) for name in names), names
        assert not names or may_name(request.API_KEY, attribute)


def filled(cls: Any, number: int) -> Any:
    """Returns a request or a part of one with one entry in each list, names in all texts, and `number` as numbers."""
    values: dict[str, Any] = {}
    for spec in cls.FIELDS:
        kind, item = KIND_NAMES[spec.kind], KIND_NAMES.get(spec.item)
        if kind == "array" and (spec.struct is not None or item == "string"):
            values[spec.name] = ["x"] if spec.struct is None else [filled(spec.struct, number)]
        elif kind == "string":
            values[spec.name] = "x"
        elif kind.startswith("int"):
            values[spec.name] = number
    return cls(**values)


@pytest.mark.parametrize("attribute", list(NAMES))
def test_a_filter_finds_the_names_in_the_requests_of_each_api_that_it_accepts(attribute: str) -> None:
    """Otherwise, a fault would be accepted and never apply."""
    accepted = [row.key for row in SERVED_APIS if may_name(row.key, attribute)]
    assert len(accepted) > 5
    for key in accepted:
        requests = [filled(request_class(key), number) for number in (0, 1, 2, 32)]  # types of keys and resources
        assert any(set(NAMES[attribute](request)) for request in requests), api_name(key)
