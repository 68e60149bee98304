"""Unmodified Kafka Streams applications in both protocols: state, joins, standby tasks, exactly-once, crashes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kcore.client.connection import Connection
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.testing import ServerProcess
from tests.clients.java_programs import command
from tests.clients.streams_apps import DEADLINE_S, SOURCE, Applications, counts, lines

TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
}


class Cluster(Applications):
    """A server, its applications, and the contents of their topics."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        super().__init__(server.bootstrap, folder)
        self.server = server

    def set_group(self, group_id: str, name: str, value: str) -> None:
        """Sets one setting of a group."""
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=32, resource_name=group_id, configs=[config])
        with Connection.to(self.server.bootstrap) as connection:
            response = connection.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [result.error_code for result in response.responses] == [0]

    def tool(self, *options: str) -> str:
        """Runs kafka-streams-groups.sh; returns its output."""
        run = subprocess.run(
            [*command(TOOL, SOURCE), "--bootstrap-server", self.server.bootstrap, *options],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A server on a data folder; its applications are killed at the end."""
    with ServerProcess(tmp_path / "data", SETTINGS, stderr=tmp_path / "server.log") as server:
        running = Cluster(server, tmp_path)
        try:
            yield running
        finally:
            running.kill()
    assert "Traceback" not in (tmp_path / "server.log").read_text()


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["streams", "classic"])
@pytest.mark.timeout(400)
def test_exactly_once_counts_survive_crashes(cluster: Cluster, protocol: str) -> None:
    """Two instances with standby tasks count every word once, although one instance and the server are killed."""
    cluster.create(w_text=3, w_counts=2)
    guarantee = {"group.protocol": protocol, "processing.guarantee": "exactly_once_v2"}
    if protocol == "streams":
        cluster.set_group("w-app", "streams.num.standby.replicas", "1")
    else:
        guarantee["num.standby.replicas"] = "1"
    one = cluster.start("w", "count", **guarantee, **{"application.server": "one:1"})
    one.wait_for("state RUNNING")
    cluster.produce("w-text", *lines(0, 100))
    cluster.read_until("w-counts", lambda values: values == counts(100))
    two = cluster.start("w", "count", **guarantee, **{"application.server": "two:2"})
    two.wait_for("state RUNNING")
    shared = two.until("tasks", lambda tasks: tasks.count("active") == 3 and tasks.count("standby") > 0)
    assert one.until("tasks", lambda tasks: tasks.count("active") == 3) != shared
    one.until("hosts", lambda hosts: "one:1" in hosts and "two:2" in hosts)
    cluster.produce("w-text", *lines(100, 200))
    one.kill()
    two.until("tasks", lambda tasks: tasks.count("active") == 6)
    cluster.read_until("w-counts", lambda values: values == counts(200))
    cluster.server.kill()
    cluster.server.start()
    cluster.produce("w-text", *lines(200, 300))
    cluster.read_until("w-counts", lambda values: values == counts(300))
    stored = two.until("query", lambda rows: "every=300" in rows)
    assert stored == "{every=300, word-0=60, word-1=60, word-2=60, word-3=60, word-4=60}"
    two.stop()


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["streams", "classic"])
@pytest.mark.timeout(300)
def test_a_join_repartitions_and_continues_after_a_restart(cluster: Cluster, protocol: str) -> None:
    """A stream and a table with different keys are joined over a co-partitioned repartition topic. After a restart, the
    application continues at its offsets with its restored table.
    """
    cluster.create(j_orders=2, j_prices=4, j_bills=1)
    products = [f"p{number}" for number in range(8)]
    cluster.produce("j-prices", *((product, f"{number}") for number, product in enumerate(products)))
    app = cluster.start("j", "join", **{"group.protocol": protocol})
    app.wait_for("state RUNNING")
    app.until("tasks", lambda tasks: tasks.count("active") == 6)
    cluster.produce("j-orders", *((f"o{number}", product) for number, product in enumerate(products[:4])))
    expected = {product: f"{product}={number}" for number, product in enumerate(products)}
    cluster.read_until("j-bills", lambda values: values == {name: expected[name] for name in products[:4]})
    topics = AdminClient({"bootstrap.servers": cluster.server.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
    assert len(topics["j-app-by-product-repartition"].partitions) == 4
    app.stop()
    cluster.produce("j-orders", *((f"o{number}", product) for number, product in enumerate(products[4:])))
    again = cluster.start("j", "join", **{"group.protocol": protocol})
    again.wait_for("state RUNNING")
    cluster.read_until("j-bills", lambda values: values == expected)
    again.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_tool_lists_describes_resets_and_deletes(cluster: Cluster) -> None:
    """kafka-streams-groups shows the state, members and offsets of a group. The tool resets and deletes the offsets of
    an empty group, and deletes the group with its internal topics.
    """
    cluster.create(t_text=2, t_counts=1)
    app = cluster.start("t", "count", **{"group.protocol": "streams"})
    app.wait_for("state RUNNING")
    cluster.produce("t-text", *lines(0, 10))
    cluster.read_until("t-counts", lambda values: values == counts(10))
    described = cluster.tool("--describe", "--group", "t-app", "--state").split()
    assert described[-2:] == ["Stable", "1"]
    members = cluster.tool("--describe", "--group", "t-app", "--members")
    assert "ACTIVE: 0:[0,1]; 1:[0,1];" in members
    offsets = [line.split()[1:3] for line in cluster.tool("--describe", "--group", "t-app").splitlines()[1:] if line]
    assert sorted(offsets) == [[topic, str(n)] for topic in ("t-app-counts-repartition", "t-text") for n in range(2)]
    app.stop()
    assert cluster.tool("--list", "--state").split()[-2:] == ["t-app", "Empty"]
    reset = cluster.tool("--reset-offsets", "--group", "t-app", "--to-earliest", "--input-topic", "t-text", "--execute")
    assert sorted(line.split() for line in reset.splitlines() if line.startswith("t-app")) == [
        ["t-app", "t-text", "0", "0"],
        ["t-app", "t-text", "1", "0"],
    ]
    deleted = cluster.tool("--delete-offsets", "--group", "t-app", "--input-topic", "t-text")
    assert sorted(line.split() for line in deleted.splitlines() if line.startswith("t-text")) == [
        ["t-text", "0", "Successful"],
        ["t-text", "1", "Successful"],
    ]
    before = cluster.topics()
    assert {"t-app-counts-repartition", "t-app-counts-changelog"} < before
    assert "successful" in cluster.tool("--delete", "--group", "t-app", "--delete-all-internal-topics")
    assert cluster.tool("--list").split() == []
    assert before - cluster.topics() == {"t-app-counts-repartition", "t-app-counts-changelog"}


@pytest.mark.timeout(300)
def test_a_missing_source_topic_is_reported(cluster: Cluster) -> None:
    """Without its input topic, the application ends with Kafka Streams' own error. Once the topic exists, the
    application runs.
    """
    cluster.create(m_counts=1)
    app = cluster.start("m", "count", **{"group.protocol": "streams", "max.poll.interval.ms": "4000"})
    assert "MissingSourceTopicException" in app.wait_for("error")
    app.kill()
    cluster.create(m_text=1)
    again = cluster.start("m", "count", **{"group.protocol": "streams"})
    again.wait_for("state RUNNING")
    cluster.produce("m-text", *lines(0, 5))
    cluster.read_until("m-counts", lambda values: values == counts(5))
    again.stop()
