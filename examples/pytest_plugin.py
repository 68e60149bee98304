"""Two tests with the fixtures of `kcore.testing`: one injects a fault, the other one kills a server.

pytest examples/pytest_plugin.py
"""

from __future__ import annotations

import pytest

import kcore
from kcore.testing import Broker, ServerProcess

pytest_plugins = ["kcore.testing.plugin"]  # only needed if kcore is not installed: pytest finds an installed plugin


def report(bootstrap: str) -> None:
    """Appends a record. This is the program under test; it may use any Kafka client."""
    with kcore.connect(bootstrap) as node, node.producer() as producer:
        producer.append("reports", "done")


@pytest.mark.kcore(topics=["reports"])
def test_a_lost_response_stores_no_record_twice(kcore_broker: Broker) -> None:
    lost = kcore_broker.disconnect("Produce", after=True)  # the broker stores the record, but its response is lost
    report(kcore_broker.bootstrap)
    assert lost.applied == 1
    assert len(kcore_broker.node.topics["reports"].read(0, 0)) == 1


def test_a_server_can_be_killed_and_started_again(kcore_server: ServerProcess) -> None:
    address = kcore_server.bootstrap
    kcore_server.kill()
    assert not kcore_server.alive
    kcore_server.start()
    assert kcore_server.bootstrap == address
