"""A node of threads that is closed while other threads use it: each of their calls ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

import kcore
from kcore.client.aio.threads import Cluster
from kcore.errors import ConnectionClosedError
from kcore.protocol.messages.metadata import MetadataRequest
from tests.node.conftest import SETTINGS

ROUNDS = 30
THREADS = 4
LIMIT_S = 60.0
"""Time limit of a call. Only a call that never ends reaches it."""


@pytest.fixture
def switched_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def call(cluster: Cluster, begun: threading.Semaphore, ends: list[Exception]) -> None:
    """Sends requests until a request fails."""
    try:
        while True:
            cluster.newest(MetadataRequest)
            cluster.metadata(["t"])
            begun.release()
    except Exception as error:
        ends.append(error)


@pytest.mark.usefixtures("switched_often")
def test_every_call_ends_when_another_thread_closes_the_node() -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t")
        bootstrap = node.listen().bootstrap
        for round_ in range(ROUNDS):
            cluster = Cluster(bootstrap)
            cluster.newest(MetadataRequest)
            begun = threading.Semaphore(0)
            ends: list[Exception] = []
            threads = [threading.Thread(target=call, args=(cluster, begun, ends), daemon=True) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for _ in range(round_ % THREADS + 1):
                begun.acquire()
            cluster.close()
            cluster.close()
            for thread in threads:
                thread.join(LIMIT_S)
            assert [type(error) for error in ends] == [ConnectionClosedError] * THREADS


def test_a_request_that_is_started_after_the_end_gets_an_error() -> None:
    with kcore.open(config=SETTINGS) as node:
        cluster = Cluster(node.listen().bootstrap)
        cluster.close()
        errors: list[Exception | None] = []
        cluster.start(MetadataRequest(), lambda response, error: errors.append(error), broker=None)
        assert [type(error) for error in errors] == [ConnectionClosedError]
        cluster.forget(MetadataRequest())
        cluster.close_channel("fetch")
        with pytest.raises(ConnectionClosedError):
            cluster.brokers()
