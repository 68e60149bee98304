"""Checks of the effects of a node's settings, mostly in virtual time. Each check fails if kcore ignores its setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kcore
from kcore.config.jaas import PLAIN_MODULE
from kcore.config.node import Config
from kcore.config.values import SAME_AS
from kcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.runtime import Pending
from kcore.server.listeners import parse_listeners
from tests.security.test_sasl_wire import handshake, plain
from tests.server.live import LiveServer, Raw


@contextmanager
def opened(**settings: Any) -> Iterator[kcore.EmbeddedNode]:
    """Opens a node in memory. Only the check advances its clock."""
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    clock = kcore.ManualClock(wall_ms=time.time_ns() // 1_000_000)  # clients stamp records with the real time
    with kcore.open(config=named, clock=clock) as node:
        yield node


def join_request(member_id: str = "", session_timeout_ms: int = 10_000) -> JoinGroupRequest:
    """Returns a request of a classic member."""
    return JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def node_id(setting: str) -> None:
    with opened(**{setting: 7}) as node:
        response = node.send(MetadataRequest(topics=[]))
        assert (response.controller_id, [broker.node_id for broker in response.brokers]) == (7, [7])


def cluster_id(setting: str) -> None:
    with opened(**{setting: "a-cluster-of-the-test"}) as node:
        assert node.send(DescribeClusterRequest()).cluster_id == "a-cluster-of-the-test"


def offsets_retention(setting: str) -> None:
    """The first check after the retention removes the offsets of a group without members. By default the retention is
    seven days, and a check runs every ten minutes.
    """
    chosen = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1_000}
    assert setting in chosen
    with opened(**chosen) as node:
        node.topics.create("t", partitions=1)
        node.group("g").commit({("t", 0): 3})
        node.advance(59_000)
        assert len(node.group("g").committed()) == 1
        node.advance(3_000)
        assert not node.group("g").committed()


def producer_expiration(setting: str) -> None:
    """The first check after the expiration removes an idle producer. By default a producer expires after a day, and a
    check runs every ten minutes.
    """
    chosen = {"producer.id.expiration.ms": 5_000, "producer.id.expiration.check.interval.ms": 1_000}
    assert setting in chosen
    with opened(**chosen) as node:
        node.topics.create("t", partitions=1)
        with node.producer() as producer:
            producer.append("t", "value").result()
        assert len(node.transactions.producers([("t", 0)])) == 1
        node.advance(4_000)
        assert len(node.transactions.producers([("t", 0)])) == 1
        node.advance(3_000)
        assert node.transactions.producers([("t", 0)]) == []


def initial_delay(setting: str) -> None:
    """The first member of a group waits for other members, by default for three seconds."""
    with opened(**{setting: 500}) as node:
        first = node.start(join_request())
        assert not isinstance(first, Pending)
        joined = node.start(join_request(first.member_id))
        assert isinstance(joined, Pending)
        node.advance(499)
        assert joined.response is None
        node.advance(1)
        assert joined.response is not None
        assert joined.response.generation_id == 1


def least_session_timeout(setting: str) -> None:
    with opened(**{setting: 8_000}) as node:
        refused, accepted = (node.start(join_request(session_timeout_ms=ms)).error_code for ms in (7_999, 8_000))
        assert (refused, accepted) == (26, 79)


def created_by_metadata(setting: str) -> None:
    """A Metadata request for a missing topic creates the topic, unless `setting` is false."""
    with opened(**{setting: "false"}) as node:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        assert [topic.error_code for topic in node.send(request).topics] == [3]
        assert not node.topics.exists("t")


def largest_fetch(setting: str) -> None:
    """A response has records up to the limit, but at least one batch."""
    with opened(**{setting: 5_000}) as node:
        topic = node.topics.create("t", partitions=3)
        for partition in range(3):
            topic.append(b"x" * 3_000, partition=partition)
        partitions = [FetchPartition(partition=number, partition_max_bytes=1_000_000) for number in range(3)]
        request = FetchRequest(max_bytes=2**30, session_epoch=-1, topics=[FetchTopic(topic="t", partitions=partitions)])
        (response,) = node.send(request, 12).responses
        assert [bool(partition.records) for partition in response.partitions] == [True, False, False]


def delay_of_refused_logins(setting: str) -> None:
    """The response to a wrong password is delayed. The check makes the loop run the timer of this delay at once, and no
    other timer.
    """
    jaas = f'{PLAIN_MODULE} required user_ann="secret";'
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": jaas,
        setting: "7777000",
    }
    with LiveServer(settings) as live:
        call_later, delays_s = live.loop.call_later, []

        def call_at_once(delay_s: float, callback: Callable[..., object], *arguments: Any) -> Any:
            delays_s.append(delay_s)
            return call_later(0 if delay_s == 7_777 else delay_s, callback, *arguments)

        live.loop.call_later = call_at_once  # type: ignore[method-assign]
        with Raw(live.server.addresses["LOGIN"][1]) as raw:
            assert handshake(raw, "PLAIN").error_code == 0
            assert plain(raw, "wrong", "ann").error_code == 58
        assert 7_777 in delays_s


def controllers(setting: str) -> None:
    """The setting names a listener of Kafka's controllers, and the server does not open this listener."""
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:9092,QUORUM://127.0.0.1:9093"}
    assert [listener.name for listener in parse_listeners(Config.of(listeners | {setting: "QUORUM"}))] == ["PLAINTEXT"]


def described_without_warning(setting: str) -> None:
    """A single node accepts the setting without using it. DescribeConfigs shows the value.

    No warning says that the setting has no effect.
    """
    config = Config.of({setting: "INTERNAL"})
    assert (config.get(setting), config.without_effect()) == ("INTERNAL", [])


def other_name(setting: str) -> None:
    """A value for Kafka's name of a setting applies to the kcore setting that `SAME_AS` names."""
    config = Config.of({setting: "77"})
    assert str(config.get(SAME_AS[setting])) == "77"


NODE_CHECKS: dict[str, Callable[[str], None]] = {
    "node.id": node_id,
    "cluster.id": cluster_id,
    "offsets.retention.minutes": offsets_retention,
    "offsets.retention.check.interval.ms": offsets_retention,
    "producer.id.expiration.ms": producer_expiration,
    "producer.id.expiration.check.interval.ms": producer_expiration,
    "group.initial.rebalance.delay.ms": initial_delay,
    "group.min.session.timeout.ms": least_session_timeout,
    "auto.create.topics.enable": created_by_metadata,
    "fetch.max.bytes": largest_fetch,
    "connection.failed.authentication.delay.ms": delay_of_refused_logins,
    "controller.listener.names": controllers,
    "inter.broker.listener.name": described_without_warning,
    "broker.id": other_name,
    "log.dirs": other_name,
    "log.dir": other_name,
}
