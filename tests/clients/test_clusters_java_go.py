"""Java's clients, Kafka Streams and franz-go at a node of a cluster that is not the controller."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.go_programs import program
from tests.clients.java_programs import command
from tests.clients.secure_clusters import ADMIN, KINDS, NODES, PROTOCOL, SCRAM, SecureCluster, running, settings_of
from tests.clients.streams_apps import Applications, counts, lines
from tests.clients.test_franz_go_share import MODES
from tests.clients.test_franz_go_share import SETTINGS as SHARE_SETTINGS
from tests.clients.test_java import LIMIT_S, STEPS, finished
from tests.clients.test_kafka_streams import SETTINGS as STREAMS_SETTINGS
from tests.clients.test_secure_clusters import MECHANISMS, set_password

# Three nodes, a database and clients make a machine with two cores busy for minutes.
pytestmark = [pytest.mark.long, pytest.mark.timeout(LIMIT_S + 60)]

SETTINGS = {
    **{name: value for name, value in STREAMS_SETTINGS.items() if "session" not in name or "streams" in name},
    **SHARE_SETTINGS,
}
MODULES = {"PLAIN": "plain.PlainLoginModule", SCRAM: "scram.ScramLoginModule"}


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A cluster of three nodes, which all tests with this kind of cluster share."""
    command("KafkaClient")  # skips without Java
    with running(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as cluster:
        yield cluster
        assert "Traceback" not in cluster.log()


def java_security(mechanism: str = "PLAIN") -> dict[str, str]:
    """Returns Java's settings for the super user."""
    user, password = ADMIN
    return {
        "security.protocol": PROTOCOL,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{MODULES[mechanism]} required "
        f'username="{user}" password="{password}";',
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_clients_work(cluster: SecureCluster, name: str, mechanism: str) -> None:
    node = cluster.follower()
    if mechanism == SCRAM:
        set_password(cluster.admin(node), ADMIN)
    security = [f"{key}={value}" for key, value in java_security(mechanism).items()]
    arguments = [cluster.addresses[node], name, name, str(len(NODES)), *security]
    program = finished([*command("KafkaClient"), *arguments])
    assert (program.stdout.splitlines(), program.returncode) == (STEPS, 0), program.stderr


def test_franz_go_acknowledges_releases_rejects_and_renews_records(cluster: SecureCluster) -> None:
    environment = {**os.environ, "KAFKA_USER": ADMIN[0], "KAFKA_PASSWORD": ADMIN[1]}
    arguments = [program(), "modes", cluster.addresses[cluster.follower()]]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    assert (done.stdout.splitlines(), done.returncode) == (MODES, 0), done.stderr[-4000:]


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_kafka_streams_counts_exactly_once(cluster: SecureCluster, tmp_path: Path, protocol: str) -> None:
    """Two instances share the tasks. One instance ends, and together both have counted every word once."""
    address = cluster.addresses[cluster.follower()]
    apps = Applications(address, tmp_path, settings_of(address, ADMIN), java_security())
    prefix = f"c{protocol}"
    settings = {"group.protocol": protocol, "processing.guarantee": "exactly_once_v2"}
    try:
        apps.create(**{f"{prefix}_text": 3, f"{prefix}_counts": 2})
        one = apps.start(prefix, "count", **settings)
        one.wait_for("state RUNNING")
        apps.produce(f"{prefix}-text", *lines(0, 100))
        apps.read_until(f"{prefix}-counts", lambda values: values == counts(100))
        two = apps.start(prefix, "count", **settings)
        two.wait_for("state RUNNING")
        two.until("tasks", lambda tasks: tasks.count("active") == 3)
        apps.produce(f"{prefix}-text", *lines(100, 200))
        one.stop()
        two.until("tasks", lambda tasks: tasks.count("active") == 6)
        assert apps.read_until(f"{prefix}-counts", lambda values: values == counts(200)) == counts(200)
        two.stop()
    finally:
        apps.kill()
