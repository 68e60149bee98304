"""Kafka's tools for share groups: they create, describe, reset, consume and delete share groups of a kcore server."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kcore.client.connection import Connection
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.testing import ServerProcess
from tests.clients import java_programs
from tests.kit import batch, make_topic, produce

POM = Path(__file__).with_name("streams_java") / "pom.xml"
"""The Maven file that names the artifact kafka-tools."""
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"
PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
GROUP_RESOURCE = 32
SETTINGS = {"group.share.assignment.interval.ms": "0", "group.share.min.heartbeat.interval.ms": "500"}

Tool = Callable[..., list[str]]


@functools.cache
def libraries() -> Path:
    """Returns the folder with Kafka's tools; skips the test without Java, Maven or a Maven repository."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    fetch = functools.partial(java_programs.fetch_libraries, POM)
    return java_programs.made_once(java_programs.digest(POM), fetch)


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    """Runs a tool against a server whose topic `jobs` has two partitions with ten records each. Returns the non-empty
    lines of the output, with columns separated by one space.
    """
    classpath = f"{libraries()}/*"
    with ServerProcess(None, SETTINGS) as server, Connection.to(server.bootstrap) as connection:
        make_topic(connection, "jobs", 2)
        for partition in range(2):
            connection.send(produce("jobs", batch([b"job"] * 10), partition), 9)
        for group in ("console", "performance"):
            own = [
                AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest"),
                AlterableConfig(name="share.heartbeat.interval.ms", config_operation=0, value="500"),
            ]
            resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=own)
            (response,) = connection.send(IncrementalAlterConfigsRequest(resources=[resource])).responses
            assert response.error_code == 0, response

        def run(main: str, *arguments: str) -> list[str]:
            java = ["java", *java_programs.QUICK, "-cp", classpath, main, "--bootstrap-server", server.bootstrap]
            done = subprocess.run([*java, *arguments], capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]

        yield run


@pytest.mark.long
@pytest.mark.clients
@pytest.mark.timeout(600)
def test_kafkas_tools_consume_describe_reset_and_delete_share_groups(tool: Tool) -> None:
    """The tools consume the records of a group, describe the group, reset its offsets, consume again, and delete the
    offsets and the group.
    """
    offsets = ("--describe", "--group", "console")
    head = "GROUP TOPIC PARTITION START-OFFSET LAG"
    consumed = tool(CONSOLE, "--topic", "jobs", "--group", "console", "--max-messages", "20", "--timeout-ms", "60000")
    assert consumed == ["job"] * 20
    assert tool(GROUPS, "--list", "--state") == ["GROUP STATE", "console Empty"]
    lags = [row.rsplit(" ", 1)[1] for row in tool(GROUPS, *offsets)]
    assert lags == ["LAG", "0", "0"]
    columns, state = tool(GROUPS, *offsets, "--state", "--verbose")[:2]
    assert columns == "GROUP COORDINATOR (ID) STATE GROUP-EPOCH ASSIGNMENT-EPOCH #MEMBERS"
    assert (state.split()[3], state.split()[-1]) == ("Empty", "0")
    reset = tool(GROUPS, "--reset-offsets", "--group", "console", "--topic", "jobs", "--to-earliest", "--execute")
    assert reset == ["GROUP TOPIC PARTITION NEW-OFFSET", "console jobs 0 0", "console jobs 1 0"]
    assert tool(GROUPS, *offsets) == [head, "console jobs 0 0 10", "console jobs 1 0 10"]
    verified = ("--topic", "jobs", "--group-id", "console", "--max-messages", "20", "--acknowledgement-mode", "sync")
    events = [json.loads(line) for line in tool(VERIFIABLE, *verified)]
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert sum(event["count"] for event in acknowledged) == 20
    assert all(event["success"] for event in acknowledged)
    deleted = tool(GROUPS, "--delete-offsets", "--group", "console", "--topic", "jobs")
    assert deleted == ["TOPIC STATUS", "jobs Successful"]
    (line,) = tool(GROUPS, "--delete", "--group", "console")
    assert line == "Deletion of requested share groups ('console') was successful."
    assert tool(GROUPS, "--list") == []


@pytest.mark.clients
@pytest.mark.timeout(300)
def test_the_performance_tool_consumes_the_requested_number_of_records(tool: Tool) -> None:
    """kafka-share-consumer-perf-test.sh ends after the number of records that its options request."""
    (_, figures) = tool(PERFORMANCE, "--topic", "jobs", "--group", "performance", "--num-records", "20")[-2:]
    assert figures.split(", ")[5] == "20"
