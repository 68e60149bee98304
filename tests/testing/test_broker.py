"""Brokers in the process of the test: start, restart, waiting, and the fixtures."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import aiokafka
import kafka
import pytest

import kcore
from kcore.errors import ConfigError, KcoreError
from kcore.testing import Broker, ServerProcess
from tests.testing.clients import confluent_consumer, confluent_producer, fill, poll, poll_until

pytest_plugins = ["pytester"]


def test_three_clients_share_a_broker(kcore_broker: Broker) -> None:
    kcore_broker.node.topics.create("jobs", partitions=1)
    producer = confluent_producer(kcore_broker)
    producer.produce("jobs", b"of confluent", partition=0)
    assert producer.flush(10) == 0
    second = kafka.KafkaProducer(bootstrap_servers=kcore_broker.bootstrap)
    second.send("jobs", b"of kafka-python", partition=0).get(10)
    second.close()

    async def read() -> list[bytes | None]:
        consumer = aiokafka.AIOKafkaConsumer(
            "jobs", bootstrap_servers=kcore_broker.bootstrap, group_id="g", auto_offset_reset="earliest"
        )
        async with consumer:
            return [(await consumer.getone()).value for _ in range(2)]

    assert asyncio.run(read()) == [b"of confluent", b"of kafka-python"]


def test_brokers_are_independent() -> None:
    with Broker(topics=["one"]) as first, Broker(topics={"two": 3}) as second:
        assert first.bootstrap != second.bootstrap
        assert [topic.name for topic in first.node.topics.list()] == ["one"]
        assert [topic.name for topic in second.node.topics.list()] == ["two"]


def test_a_started_broker_has_imported_every_api() -> None:
    """A started broker has imported all APIs. A later import on its thread could disturb pytest's report of a failed
    test (Python issue 106905).
    """
    with Broker() as broker:
        apis = broker._driver.engine.apis
        assert set(apis.made) == set(apis)


def test_a_broker_in_an_event_loop() -> None:
    async def run() -> str:
        async with Broker(topics=["t"]) as broker:
            await broker.wait_for_async(lambda b: b.connection_count == 0)
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
            async with producer:
                await producer.send_and_wait("t", b"v", partition=0)
            (record,) = broker.node.topics["t"].read(0, 0)
            return str(record.value, "utf-8")

    assert asyncio.run(run()) == "v"


def test_stopped_brokers_leave_no_thread_and_no_socket() -> None:
    before = threading.active_count()
    descriptors = len(list(Path("/dev/fd").iterdir()))
    for _ in range(20):
        with Broker():
            pass
    gc.collect()
    assert threading.active_count() == before
    assert len(list(Path("/dev/fd").iterdir())) <= descriptors


@pytest.mark.parametrize("kill", [False, True])
def test_committed_records_survive_a_restart(kill: bool) -> None:
    with Broker(topics=["t"]) as broker:
        fill(broker, "t", 3)
        broker.node.group("g").commit({("t", 0): 2})
        address = broker.bootstrap
        broker.restart(kill=kill)
        assert broker.bootstrap == address
        assert [record.value for record in broker.node.topics["t"].read(0, 0)] == [b"0", b"1", b"2"]
        broker.assert_committed("g", {("t", 0): 2})


def test_a_consumer_continues_after_a_kill(kcore_broker: Broker) -> None:
    kcore_broker.node.topics.create("t", partitions=1)
    fill(kcore_broker, "t", 2)
    consumer = confluent_consumer(kcore_broker)
    consumer.subscribe(["t"])
    assert [record.value() for record in poll(consumer, 2)] == [b"0", b"1"]
    kcore_broker.restart(kill=True)
    fill(kcore_broker, "t", 1)
    assert [record.offset() for record in poll(consumer, 1)] == [2]
    consumer.close()


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = Broker()
    with pytest.raises(KcoreError, match="the broker does not run"):
        _ = broker.node
    with broker, pytest.raises(KcoreError, match="runs already"):
        broker.start()
    broker.stop()  # a second stop does nothing


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        Broker({"no.such.setting": 1}).start()


def test_wait_for_fails_with_the_history_of_the_groups(kcore_broker: Broker) -> None:
    kcore_broker.node.topics.create("t", partitions=1)
    consumer = confluent_consumer(kcore_broker, client_id="c1")
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: kcore_broker.groups["g"].state == "Stable")
    with pytest.raises(AssertionError, match=r"still false after 0.1 s[\s\S]*history of group g[\s\S]*joined +c1"):
        kcore_broker.wait_for(lambda b: b.groups["g"].state == "Empty", timeout=0.1)
    consumer.close()
    kcore_broker.wait_for(lambda b: b.groups["g"].state == "Empty")


@pytest.mark.kcore(topics={"jobs": 3}, settings={"auto.create.topics.enable": "false"})
def test_the_marker_configures_the_broker(kcore_broker: Broker) -> None:
    assert kcore_broker.node.config.auto_create_topics_enable is False
    assert len(kcore_broker.node.topics["jobs"].end_offsets()) == 3


@pytest.mark.kcore(topics={"jobs": 3}, settings={"auto.create.topics.enable": "false"})
def test_the_marker_configures_the_server(kcore_server: ServerProcess) -> None:
    with kcore.connect(kcore_server.bootstrap) as node:
        assert len(node.topics["jobs"].end_offsets()) == 3
    producer = kafka.KafkaProducer(bootstrap_servers=kcore_server.bootstrap, max_block_ms=300)
    with pytest.raises(kafka.errors.KafkaError):
        producer.send("absent", b"v").get(10)
    producer.close()


def test_wait_for_names_its_condition_and_the_last_value(kcore_broker: Broker) -> None:
    with pytest.raises(AssertionError, match=r"^the condition at test_broker\.py:\d+ is still false after 0 s$"):
        kcore_broker.wait_for(lambda b: False, timeout=0)
    with pytest.raises(AssertionError, match=r"is still false after 0 s: its last value was \{\}$"):
        kcore_broker.wait_for(lambda b: b.committed("g"), timeout=0)
    with pytest.raises(AssertionError, match=r"^'a commit' is still false after 0 s"):
        kcore_broker.wait_for(lambda b: b.committed("g"), timeout=0, message="'a commit'")


def test_wait_for_on_an_event_loop_names_the_other_method(kcore_broker: Broker) -> None:
    async def blocking() -> None:
        kcore_broker.wait_for(lambda b: False, timeout=0)

    async def waiting() -> None:
        await kcore_broker.wait_for_async(lambda b: False, timeout=0, message="'nothing'")

    with pytest.raises(AssertionError, match=r"blocked the event loop: use `await broker\.wait_for_async"):
        asyncio.run(blocking())
    with pytest.raises(AssertionError, match=r"^'nothing' is still false after 0 s$"):
        asyncio.run(waiting())


def test_the_report_has_each_history_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(kcore_broker):
            kcore_broker.node.topics.create("t", partitions=1)
            kcore_broker.node.group("one").commit({("t", 0): 7})
            kcore_broker.node.group("two").commit({("t", 0): 7})
            kcore_broker.assert_committed("two", {("t", 0): 8})
        """
    )
    result = pytester.runpytest_inprocess("-p", "kcore.testing.plugin", "-p", "no:randomly", "--tb=native")
    # The short summary repeats the message of the assertion where pytest finds the variable CI.
    report = result.outlines[: result.outlines.index(next(x for x in result.outlines if "short test summary" in x))]
    assert [line for line in report if "history of group" in line] == [
        "history of group two",
        "history of group one",
    ]


def test_the_report_leaves_other_arguments_of_a_test_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from kcore.testing import Broker

        class Other:
            def histories(self):
                raise RuntimeError

        @pytest.mark.parametrize("argument", [Broker, Other(), Other])
        def test_fails(argument):
            assert False
        """
    )
    result = pytester.runpytest_inprocess("-p", "kcore.testing.plugin", "-p", "no:randomly")
    result.assert_outcomes(failed=3)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("topic='jobs'", "the marker kcore has no argument 'topic'; valid: topics, settings"),
        ("['jobs']", "the marker kcore takes named arguments"),
    ],
)
def test_wrong_arguments_of_the_marker_are_refused(pytester: pytest.Pytester, marker: str, message: str) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.kcore({marker})
        def test_passes(kcore_broker):
            pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "kcore.testing.plugin", "-p", "no:randomly")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*"])


def test_the_report_of_a_failed_test_has_the_histories(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(kcore_broker):
            kcore_broker.node.topics.create("t", partitions=1)
            kcore_broker.node.group("workers").commit({("t", 0): 7})
            assert False
        """
    )
    result = pytester.runpytest_inprocess("-p", "kcore.testing.plugin", "-p", "no:randomly")
    result.stdout.fnmatch_lines(["*groups of kcore_broker*", "history of group workers", "*committed*t-0=7*"])
    result.assert_outcomes(failed=1)
