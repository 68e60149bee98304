"""Share consumers of real clients, each in its own process, that acknowledge records at random.

As a program, this module runs the consumer of librdkafka or kcore until its standard input ends:

    python -m tests.crash.share_clients librdkafka|kcore BOOTSTRAP GROUP TOPIC SEED
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import pytest

LIMIT = 4
"""Delivery count at which a client no longer releases a record, so that the server does not archive the record."""
ROOT = Path(__file__).parents[2]
JAVA_SOURCE = Path(__file__).with_name("java") / "ShareWorker.java"


def choose(rng: random.Random, count: int) -> str:
    """Chooses a random acknowledgement type, depending on the delivery count."""
    chosen = rng.random()
    if chosen < 0.15 and count < LIMIT:
        return "release"
    return "reject" if chosen < 0.3 else "accept"


class Client:
    """One share consumer.

    Args:
        name: the client's name, which is also its client id.
        command: the command that starts the client.
        log: the file for its output.
    """

    def __init__(self, name: str, command: list[str], log: IO[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, text=True
        )

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Closes the standard input of the client and returns its exit status. Kills a client that does not end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1

    def kill(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.wait()


def commands(bootstrap: str, group: str, rng: random.Random, folder: Path, *, go: bool) -> dict[str, list[str]]:
    """Returns the command of each client that this machine can run: kcore and librdkafka, and franz-go and Java if
    their tools are installed.

    Args:
        bootstrap: the address of the server.
        group: the name of the group and of its topic.
        rng: makes the seed of each client.
        folder: for compiled programs.
        go: True for franz-go, too; compiling it takes a minute of CPU on a new machine.
    """
    from tests.clients import go_programs, java_programs

    def arguments() -> list[str]:
        return [bootstrap, group, group, str(rng.randrange(1 << 31))]

    python = [sys.executable, "-m", "tests.crash.share_clients"]
    found = {name: [*python, name, *arguments()] for name in ("kcore", "librdkafka")}
    try:
        if not go:
            pytest.skip("only the long test has it")
        found["franz-go"] = [str(go_programs.program()), "work", *arguments()]
    except pytest.skip.Exception as reason:
        print(f"without franz-go: {reason}")
    try:
        libraries = java_programs.classpath()
        subprocess.run(["javac", "-cp", libraries, "-d", str(folder), str(JAVA_SOURCE)], check=True, timeout=120)
        java = ["java", *java_programs.QUICK, "-cp", f"{folder}:{libraries}", "ShareWorker"]
        found["java"] = [*java, *arguments()]
    except pytest.skip.Exception as reason:
        print(f"without Java: {reason}")
    return found


def end_of_input() -> threading.Event:
    """Returns an event that is set when the standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def run_librdkafka(bootstrap: str, group: str, topic: str, rng: random.Random) -> None:
    """Consumes with librdkafka's share consumer, in explicit mode."""
    from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

    kinds = {
        "accept": AcknowledgeType.ACCEPT,
        "release": AcknowledgeType.RELEASE,
        "reject": AcknowledgeType.REJECT,
    }
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "librdkafka",
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 20,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    consumer: Any = ShareConsumer(settings)
    consumer.subscribe([topic])
    ended = end_of_input()
    while not ended.is_set():
        messages = [message for message in consumer.poll(0.2) or [] if message.error() is None]
        for message in messages:
            count = message.delivery_count() if hasattr(message, "delivery_count") else LIMIT
            consumer.acknowledge(message, kinds[choose(rng, count or 1)])
        if messages and rng.random() < 0.5:
            try:
                consumer.commit_sync(5.0)
            except KafkaException as error:
                print(f"commit: {error}", flush=True)
    consumer.close()


def run_kcore(bootstrap: str, group: str, topic: str, rng: random.Random) -> None:
    """Consumes with `queue` of kcore's client."""
    import kcore
    from kcore.errors import ConnectionClosedError, KcoreError

    ended = end_of_input()
    with (
        kcore.connect(bootstrap, client_id="kcore") as node,
        node.queue(topic, group=group, auto_accept=False, max_jobs=20) as jobs,
    ):
        while not ended.is_set():
            try:
                job = jobs.get(timeout=0.2)
                if job is not None:
                    getattr(job, choose(rng, job.delivery_count))()
            except (KcoreError, ConnectionClosedError, TimeoutError) as error:
                print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    library, *rest, given_seed = sys.argv[1:]
    {"librdkafka": run_librdkafka, "kcore": run_kcore}[library](*rest, random.Random(int(given_seed)))
