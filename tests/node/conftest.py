"""Runs the same cases with an embedded engine, `kcore serve` and Apache Kafka, each in both API styles.

The cases run against Apache Kafka if `KCORE_TEST_KAFKA` is set: to HOST:PORT of a broker, or to `start` for a broker
that the tests start (`make test-kafka`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

import kcore
from kcore.testing.server import ServerProcess
from tests.apache.broker import ApacheKafka

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
}
KAFKA = os.environ.get("KCORE_TEST_KAFKA", "")
REMOTE = ["serve", *(["kafka"] if KAFKA else [])]
TARGETS = ["embedded", *REMOTE]


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    with ServerProcess(settings=SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if KAFKA != "start":
        yield KAFKA
        return
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap


def bootstrap_of(target: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("served" if target == "serve" else "apache")
    return found


@pytest.fixture(params=TARGETS)
def node(request: pytest.FixtureRequest) -> Iterator[kcore.Node]:
    if request.param == "embedded":
        with kcore.open(config=SETTINGS) as embedded:
            yield embedded
        return
    with kcore.connect(bootstrap_of(request.param, request)) as connected:
        yield connected


@pytest.fixture(params=TARGETS)
async def anode(request: pytest.FixtureRequest) -> AsyncIterator[kcore.AsyncNode]:
    if request.param == "embedded":
        async with kcore.open_async(config=SETTINGS) as embedded:
            yield embedded
        return
    async with kcore.connect_async(bootstrap_of(request.param, request)) as connected:
        yield connected


@pytest.fixture(params=REMOTE)
def bootstrap(request: pytest.FixtureRequest) -> str:
    return bootstrap_of(request.param, request)


@pytest.fixture
def name() -> str:
    """Returns a name that no other test uses, because the tests share the servers."""
    return f"t{uuid.uuid4().hex[:12]}"
