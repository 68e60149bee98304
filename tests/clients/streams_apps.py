"""Kafka Streams applications of the tests, and the contents of their topics."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.java_programs import command

SOURCE = Path(__file__).with_name("streams_java")
DEADLINE_S = 90.0


class App:
    """One instance of a Kafka Streams application: a Java process that executes commands."""

    def __init__(self, bootstrap: str, prefix: str, kind: str, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = {
            "bootstrap.servers": bootstrap,
            "application.id": f"{prefix}-app",
            "state.dir": str(folder),
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "300",
            **settings,
        }
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*command("StreamsApp", SOURCE), prefix, kind, *(f"{name}={value}" for name, value in options.items())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def wait_for(self, start: str) -> str:
        """Waits for the next output line that begins with `start`, and returns the line."""
        deadline = time.monotonic() + DEADLINE_S
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=min(left, 1))
                self.seen.append(line)
                if line.startswith(start):
                    return line
        raise AssertionError(f"no line {start!r}; there were {self.seen}")

    def send_command(self, request: str) -> str:
        """Sends a command to the application. Returns the text that follows the command's name in the output."""
        self._write(request)
        return self.wait_for(request).partition(" ")[2]

    def until(self, request: str, done: Callable[[str], bool]) -> str:
        """Repeats a command until `done` accepts its output; returns the output."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            output = self.send_command(request)
            if done(output):
                return output
            time.sleep(0.2)
        raise AssertionError(f"the last output of {request!r} was {output}")

    def stop(self) -> None:
        """Closes the application, which then leaves its group."""
        self._write("stop")
        assert self.wait_for("closed") == "closed true"
        assert self.process.wait(DEADLINE_S) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


class Applications:
    """Applications, and the contents of their topics.

    Args:
        bootstrap: the address that all clients get.
        folder: the folder for their state.
        security: librdkafka's settings for security.
        java_security: the same settings for Java.
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        security: Mapping[str, Any] | None = None,
        java_security: Mapping[str, str] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.apps: list[App] = []
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, **(security or {})}
        self._java_security = dict(java_security or {})

    def start(self, prefix: str, kind: str, **settings: str) -> App:
        settings = {**self._java_security, **settings}
        app = App(self.bootstrap, prefix, kind, self.folder / f"app-{len(self.apps)}", **settings)
        self.apps.append(app)
        return app

    def create(self, **topics: int) -> None:
        admin = AdminClient(self._settings)
        made = admin.create_topics([NewTopic(name.replace("_", "-"), count, 1) for name, count in topics.items()])
        for future in made.values():
            future.result()

    def produce(self, topic: str, *records: tuple[str, str]) -> None:
        """Produces records with Java's default partitioner, murmur2."""
        producer = Producer({**self._settings, "partitioner": "murmur2_random"})
        for key, value in records:
            producer.produce(topic, key=key, value=value)
        assert producer.flush(30) == 0

    def read_until(self, topic: str, done: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Reads committed records of a topic until `done` accepts the last values of all keys."""
        consumer = Consumer(
            {
                **self._settings,
                "group.id": f"reader-of-{topic}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        values: dict[str, str] = {}
        try:
            consumer.subscribe([topic])
            deadline = time.monotonic() + DEADLINE_S
            while not done(values) and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and not message.error():
                    key, value = message.key(), message.value()
                    assert key is not None
                    assert value is not None
                    values[key.decode()] = value.decode()
        finally:
            consumer.close()
        assert done(values), values
        return values

    def topics(self) -> set[str]:
        """Returns the names of all topics."""
        admin = AdminClient(self._settings)
        return set(admin.list_topics(timeout=30).topics)

    def kill(self) -> None:
        """Ends all applications."""
        for app in self.apps:
            app.kill()


def lines(start: int, stop: int) -> list[tuple[str, str]]:
    return [(str(number), f"every word-{number % 5}") for number in range(start, stop)]


def counts(total: int) -> dict[str, str]:
    per_word = {f"word-{word}": str(len(range(word, total, 5))) for word in range(5)}
    return {"every": str(total), **per_word}
