"""An Apache Kafka broker in a process of its own, as a reference for tests of the client API.

Maven fetches the broker's libraries once, into `build/apache-kafka`. `make test-kafka` runs the tests that need it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
CACHE = Path(__file__).parents[2] / "build" / "apache-kafka"
JAVA = ("java", "-Xmx512m", "-Xms256m", "-XX:TieredStopAtLevel=1")
START_S = 90.0
FETCH_S = 280.0

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
group.consumer.min.session.timeout.ms=100
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
group.consumer.session.timeout.ms=6000
auto.create.topics.enable=false
"""


SASL_PROPERTIES = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={users}
"""


def plain_users(users: Mapping[str, str]) -> str:
    """Returns the value of `plain.sasl.jaas.config` for users with their passwords."""
    options = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


def libraries() -> Path:
    """Returns the folder of the broker's libraries. The first call downloads them with Maven."""
    target = CACHE / "libs"
    if target.exists():
        return target
    fresh = CACHE / f"fresh-{os.getpid()}"
    maven = ["mvn", "-q", "-B", "-f", str(FOLDER / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*maven, f"-DoutputDirectory={fresh}"], check=True, capture_output=True, timeout=FETCH_S)
    try:
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh)
    return target


def free_port() -> int:
    """Returns a port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ApacheKafka:
    """One broker in KRaft mode on a temporary folder.

    Args:
        folder: an empty folder for its data.
        settings: settings in addition to those of `PROPERTIES`.
        users: the names and passwords of the users that may log in at `sasl_port`, with SASL's mechanism PLAIN.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, users: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._users = users or {}
        self.port = free_port()
        self.sasl_port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"

    def __enter__(self) -> ApacheKafka:
        classpath = f"{libraries()}/*"
        settings = self._folder / "server.properties"
        ports = {"port": self.port, "controller": free_port(), "sasl": self.sasl_port}
        text = PROPERTIES.format(logs=self._folder / "logs", **ports).strip()
        if self._users:
            text += SASL_PROPERTIES.format(users=plain_users(self._users), **ports)
        settings.write_text("\n".join([text, *(f"{name}={value}" for name, value in self._settings.items())]))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_command = [*JAVA, "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", cluster_id]
        subprocess.run([*format_command, "-c", str(settings)], check=True, capture_output=True, timeout=START_S)
        self.start()
        return self

    def start(self) -> None:
        """Starts the broker, on the data that it had before, and waits until it listens.

        Raises:
            RuntimeError: the broker ended. The message contains the broker's output.
            TimeoutError: the broker did not listen within `START_S`.
        """
        settings = self._folder / "server.properties"
        with (self._folder / "output.log").open("wb") as output:
            self._process = subprocess.Popen(
                [*JAVA, "-cp", f"{libraries()}/*", "kafka.Kafka", str(settings)], stdout=output, stderr=output
            )
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                raise RuntimeError((self._folder / "output.log").read_text()[-4_000:])
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        self.kill()
        raise TimeoutError("Apache Kafka did not start")

    def kill(self) -> None:
        """Ends the broker with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ends the broker with SIGTERM, so that it stores the start offsets of its logs first."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_S)

    def __exit__(self, *_: object) -> None:
        self.kill()
