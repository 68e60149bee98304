"""franz-go's share consumer: all modes of acknowledgement, and a server that is killed and started again."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from kcore.client import Connection
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.testing import ServerProcess
from tests.clients.go_programs import program
from tests.kit import PRODUCE_VERSION, batch, make_topic, produce

pytestmark = pytest.mark.long
"""The marker `long`, because compiling the Go program takes a minute of processor time on a new machine."""

GROUP_RESOURCE = 32
SETTINGS = {"group.share.assignment.interval.ms": "0", "group.share.min.record.lock.duration.ms": "1000"}
MODES = [
    "ok: each record once, and never again",
    "ok: released records come again, rejected ones do not",
    "ok: a lock is renewed",
    "ok: a member that leaves releases its records",
]
"""Lines that the program writes in mode "modes"."""


@pytest.mark.timeout(400)
def test_franz_go_acknowledges_releases_rejects_and_renews_records(tmp_path: Path) -> None:
    """The client uses implicit and explicit acknowledgement, release, rejection and renewal. Records are redelivered
    after a member leaves.
    """
    executable = program()
    with ServerProcess(tmp_path / "data", SETTINGS, stderr=tmp_path / "server.log") as server:
        done = subprocess.run(
            [executable, "modes", server.bootstrap], capture_output=True, text=True, timeout=300, check=False
        )
    assert (done.stdout.splitlines(), done.returncode) == (MODES, 0), done.stderr[-4000:]
    assert (tmp_path / "server.log").read_text() == ""


def append(bootstrap: str, topic: str, first: int, last: int) -> None:
    """Appends numbered records, alternately to both partitions."""
    with Connection.to(bootstrap) as connection:
        for partition in range(2):
            values = [str(number).encode() for number in range(first, last) if number % 2 == partition]
            response = connection.send(produce(topic, batch(values), partition), PRODUCE_VERSION)
            assert response.responses[0].partition_responses[0].error_code == 0, response


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_acknowledged_records_are_not_delivered_again_after_a_kill(tmp_path: Path) -> None:
    """After kill -9 the server never delivers acknowledged records again, and the client gets all other records."""
    executable = program()
    with ServerProcess(tmp_path / "data", SETTINGS, stderr=tmp_path / "server.log") as server:
        with Connection.to(server.bootstrap) as connection:
            make_topic(connection, "jobs", 2)
            earliest = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
            group = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="jobs", configs=[earliest])
            response = connection.send(IncrementalAlterConfigsRequest(resources=[group]))
            assert response.responses[0].error_code == 0, response
        append(server.bootstrap, "jobs", 0, 100)
        process = subprocess.Popen(
            [executable, "follow", server.bootstrap, "jobs", "jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout or ()], daemon=True)
        reader.start()
        done: Counter[str] = Counter()

        def until(count: int) -> None:
            while len(done) < count:
                kind, value, *_ = lines.get(timeout=90).split()
                if kind == "done":
                    done[value] += 1

        try:
            until(100)
            server.kill()
            server.start()
            append(server.bootstrap, "jobs", 100, 200)
            until(200)
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    assert done == Counter(str(number) for number in range(200))
