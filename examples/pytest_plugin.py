"""Tests of user code against a real server, a new one for each test, with any Kafka client.

pytest examples/pytest_plugin.py
"""

from __future__ import annotations

from kcore.client import Connection
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.testing import ServerProcess

pytest_plugins = ["kcore.testing.plugin"]


def test_a_client_finds_the_cluster(kcore_bootstrap: str) -> None:
    with Connection.to(kcore_bootstrap) as connection:
        (broker,) = connection.send(MetadataRequest(topics=None)).brokers
    assert f"{broker.host}:{broker.port}" == kcore_bootstrap


def test_a_server_can_be_killed_and_started_again(kcore_server: ServerProcess) -> None:
    address = kcore_server.bootstrap
    kcore_server.kill()
    assert not kcore_server.alive
    kcore_server.start()
    assert kcore_server.bootstrap == address
