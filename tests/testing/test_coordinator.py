"""Faults of the coordinator, of the disk and of the clock, as real clients see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import pytest

from kcore.errors import KafkaError
from kcore.testing import Broker
from tests.testing.clients import LIMIT, POLL_S, confluent_producer, fill, poll, poll_until

pytestmark = pytest.mark.kcore(topics={"t": 2})


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, kcore_broker: Broker) -> Iterator[confluent_kafka.Consumer]:
    """Yields a consumer in the stable group `g`, with either protocol."""
    options = {"group_protocol": request.param} if request.param == "consumer" else {}
    consumer = _consumer(kcore_broker, **options)
    yield consumer
    consumer.close()


def _consumer(broker: Broker, **options: object) -> confluent_kafka.Consumer:
    new_protocol = options.get("group_protocol") == "consumer"
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    settings |= {"enable.auto.commit": False, "log_level": 0, "client.id": "c1", "reconnect.backoff.ms": 10}
    settings |= {} if new_protocol else {"heartbeat.interval.ms": 50}
    settings |= {name.replace("_", "."): value for name, value in options.items()}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: broker.groups["g"].state == "Stable" and len(consumer.assignment()) == 2)
    return consumer


def test_rebalance_starts_a_new_generation_or_epoch(kcore_broker: Broker, member: confluent_kafka.Consumer) -> None:
    group = kcore_broker.groups["g"]
    before = group.epoch
    group.rebalance()
    poll_until(member, lambda: group.state == "Stable" and group.epoch > before)
    causes = [event.cause for event in group.history().of("control")]
    assert causes == ["test: rebalance()"]
    assert group.member("c1").partitions == {("t", 0), ("t", 1)}


def test_expire_removes_a_member_that_then_rejoins(kcore_broker: Broker, member: confluent_kafka.Consumer) -> None:
    group = kcore_broker.groups["g"]
    first = group.member("c1").member_id
    group.expire(client_id="c1")
    poll_until(member, lambda: group.history().of("fenced") and len(group.members) == 1)
    fenced = group.history().of("fenced")[0]
    assert (fenced.detail, fenced.member_id) == ("UNKNOWN_MEMBER_ID", first)
    assert fenced.cause.endswith(f"removed by: test: expire({first})")
    with pytest.raises(LookupError, match="has no member 'nobody'"):
        group.expire("nobody")
    with pytest.raises(LookupError, match=r"0 members with client id 'c2', not one; the client ids .* are \['c1'\]"):
        group.fence(client_id="c2")
    with pytest.raises(TypeError, match="give either member_id or client_id"):
        group.expire()
    with pytest.raises(LookupError, match="does not exist"):
        kcore_broker.groups["other"].rebalance()


def test_fence_makes_the_members_requests_fail(kcore_broker: Broker, member: confluent_kafka.Consumer) -> None:
    group = kcore_broker.groups["g"]
    error = "UNKNOWN_MEMBER_ID" if group.snapshot().kind == "classic" else "FENCED_MEMBER_EPOCH"
    group.fence(client_id="c1")
    if error == "UNKNOWN_MEMBER_ID":
        poll_until(member, lambda: [event.detail for event in group.history().of("fenced")] == [error])
    else:
        poll_until(member, lambda: any(error in event.cause for event in group.history().of("fault")))
    poll_until(member, lambda: len(member.assignment()) == 2 and group.state == "Stable")
    assert group.member("c1").partitions == {("t", 0), ("t", 1)}


def test_a_fenced_static_member_gets_a_fatal_error(kcore_broker: Broker) -> None:
    consumer = _consumer(kcore_broker, group_instance_id="worker-1")
    group = kcore_broker.groups["g"]
    group.fence(group.member("c1").member_id)
    errors: list[str] = []
    for _ in range(LIMIT):
        record = consumer.poll(POLL_S)
        errors += [] if record is None or record.error() is None else [record.error().name()]
        if errors:
            break
    assert [event.detail for event in group.history().of("fenced")][:1] == ["FENCED_INSTANCE_ID"]
    assert errors == ["_FATAL"]
    consumer.close()


def test_members_continue_after_move_coordinator(kcore_broker: Broker, member: confluent_kafka.Consumer) -> None:
    fill(kcore_broker, "t", 3)
    records = poll(member, 3)
    group = kcore_broker.groups["g"]
    group.move_coordinator()
    assert len(group.members) == 1  # loaded from the log
    member.commit(message=records[-1], asynchronous=False)
    kcore_broker.assert_committed("g", {("t", 0): 3})
    assert group.history().of("fenced") == []


def test_an_unloaded_coordinator_refuses_until_it_is_loaded(kcore_broker: Broker) -> None:
    group = kcore_broker.groups["g"]
    kcore_broker.node.group("g").commit({("t", 0): 1})
    group.unload_coordinator()
    assert group.state == "Dead"
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        _ = group.offsets
    group.load_coordinator()
    assert group.offsets == {("t", 0): 1}


def test_the_clock_ends_sessions(kcore_broker: Broker) -> None:
    """The test advances the broker's clock by the session timeout, so a member's session expires."""
    consumer = _consumer(kcore_broker, session_timeout_ms=30_000)
    group = kcore_broker.groups["g"]
    kcore_broker.clock.advance(29)
    assert len(group.members) == 1
    begin_s = time.monotonic()
    kcore_broker.clock.advance(31)
    assert [event.kind for event in group.history().of("left")] == ["left"]
    assert "expired after 30000 ms" in group.history().of("left")[0].cause
    assert time.monotonic() - begin_s < 20
    consumer.close()


def test_a_frozen_clock_keeps_sessions(kcore_broker: Broker) -> None:
    consumer = _consumer(kcore_broker, session_timeout_ms=100, heartbeat_interval_ms=1_000)
    kcore_broker.clock.freeze()
    now = kcore_broker.clock.now
    assert kcore_broker.clock.frozen
    before = len(kcore_broker.history("g").of("left"))
    assert kcore_broker.clock.now == now
    kcore_broker.clock.advance(0.2)
    assert len(kcore_broker.history("g").of("left")) >= before
    kcore_broker.clock.resume()
    kcore_broker.wait_for(lambda b: b.clock.now > now + 0.2)
    consumer.close()


def test_step_wall_changes_timestamps_and_no_timeout(kcore_broker: Broker) -> None:
    kcore_broker.node.topics["t"].set_config({"message.timestamp.type": "LogAppendTime"})
    fill(kcore_broker, "t", 1)
    kcore_broker.clock.step_wall(-3600)
    fill(kcore_broker, "t", 1)
    first, second = kcore_broker.node.topics["t"].read(0, 0)
    assert -3601 < (second.timestamp - first.timestamp).total_seconds() < -3500


def test_a_full_disk_refuses_records_until_it_has_space(kcore_broker: Broker) -> None:
    kcore_broker.fill_disk()

    async def send(timeout_ms: int) -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=kcore_broker.bootstrap, request_timeout_ms=timeout_ms, retry_backoff_ms=5
        )
        async with producer:
            return (await producer.send_and_wait("t", b"v", partition=0)).offset

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(send(100))
    assert kcore_broker.node.topics["t"].end_offsets()[0] == 0
    kcore_broker.free_disk()
    assert asyncio.run(send(5_000)) == 0


def test_a_power_failure_loses_unsynced_records(kcore_broker: Broker) -> None:
    fill(kcore_broker, "t", 2)
    kcore_broker.stop_syncing()
    fill(kcore_broker, "t", 3)
    kcore_broker.restart(kill=True)  # a killed process loses nothing
    assert kcore_broker.node.topics["t"].end_offsets()[0] == 5
    kcore_broker.restart(power=True)
    assert kcore_broker.node.topics["t"].end_offsets()[0] == 2
    assert [record.value for record in kcore_broker.node.topics["t"].read(0, 0)] == [b"0", b"1"]


def test_synced_records_survive_a_power_failure(kcore_broker: Broker) -> None:
    kcore_broker.stop_syncing()
    fill(kcore_broker, "t", 2)
    kcore_broker.sync()
    kcore_broker.restart(power=True)
    assert kcore_broker.node.topics["t"].end_offsets()[0] == 2


def test_fence_producer_ends_the_transaction_of_the_producer(kcore_broker: Broker) -> None:
    producer = confluent_producer(kcore_broker, transactional_id="tx")
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush(10)
    with pytest.raises(AssertionError, match="transaction tx is ONGOING"):
        kcore_broker.assert_at_rest()
    kcore_broker.fence_producer("tx")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.commit_transaction(10)
    assert refused.value.args[0].fatal()
    kcore_broker.assert_at_rest()
    assert list(kcore_broker.node.topics["t"].read(0, 0)) == []
