"""Seeded traffic for the Spark demonstration: three protocols, joins, leaves, crashes, transactions."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from kcore.demo.actor import SESSION_TIMEOUT_MS
from kcore.demo.topics import make_topics
from kcore.errors import KcoreError

SETTINGS: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""The server's settings. Timeouts are short, so that many rebalances fit into a traffic of half a minute."""

TOPICS: Final = {"orders": 6, "payments": 6, "clicks": 4, "invoices": 2}
RECORDS_PER_S: Final = 400
STOP_S: Final = 10.0


class Cast(NamedTuple):
    """A group of the traffic: the protocol of its members, its topic, and its initial number of members."""

    protocol: str
    topic: str
    members: int


GROUPS: Final = {
    "order-desk": Cast("range", "orders", 3),
    "payment-desk": Cast("consumer", "payments", 3),
    "click-counters": Cast("cooperative", "clicks", 2),
    "invoicing": Cast("transactional", "orders", 2),
}
"""Mapping from each group id to the group's protocol, topic and initial number of members."""
STORMY: Final = "payment-desk"
"""The group whose members come and go in quick succession near the end."""


class Act(NamedTuple):
    """An event of the traffic: the time in seconds since the start, the action (join, leave or crash), and the
    group.
    """

    at_s: float
    what: str
    group: str


def script(seed: int, seconds: float) -> list[Act]:
    """Returns joins, leaves and crashes in the order of their time. Equal arguments give equal events."""
    chance = random.Random(seed)
    acts = []
    for group in GROUPS:
        for begin, end in ((0.2, 0.4), (0.45, 0.6), (0.62, 0.7)):
            at_s = chance.uniform(begin, end) * seconds
            acts.append(Act(at_s, chance.choice(["join", "leave", "crash", "join"]), group))
    acts.append(Act(0.3 * seconds, "crash", "order-desk"))
    acts.append(Act(0.35 * seconds, "join", "order-desk"))
    for step in range(3):
        begin_s = (0.74 + 0.06 * step) * seconds
        acts += [Act(begin_s, "join", STORMY), Act(begin_s + 0.03 * seconds, "leave", STORMY)]
    return sorted(acts)


class Traffic:
    """The members of a script, and the actions that they take against a running server.

    Args:
        bootstrap: HOST:PORT of the server.
        seed: the seed of all random choices.
        say: receives each event as (actor, action).
    """

    def __init__(self, bootstrap: str, seed: int, say: Callable[[str, str], None]) -> None:
        self._bootstrap = bootstrap
        self._seed = seed
        self._say = say
        self._actors: dict[str, list[tuple[str, subprocess.Popen[bytes]]]] = {group: [] for group in GROUPS}
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._names = 0
        self.produced = 0

    def play(self, seconds: float) -> None:
        """Performs the events of the script for `seconds`. At the end, the running members leave their groups."""
        make_topics(self._bootstrap, TOPICS)
        done = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(done,), daemon=True)
        feeder.start()
        try:
            for group, cast in GROUPS.items():
                for _ in range(cast.members):
                    self._join(group)
            begun_s = time.monotonic()
            for act in script(self._seed, seconds):
                time.sleep(max(0.0, begun_s + act.at_s - time.monotonic()))
                self._act(act)
            time.sleep(max(0.0, begun_s + seconds - time.monotonic()))
        finally:
            done.set()
            feeder.join(STOP_S)
            self._end()

    def _feed(self, done: threading.Event) -> None:
        """Writes records evenly to all topics."""
        from confluent_kafka import Producer  # noqa: PLC0415

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        read = sorted({cast.topic for cast in GROUPS.values()})
        while not done.wait(0.05):
            for topic in read:
                for _ in range(RECORDS_PER_S // 20 // len(read)):
                    producer.produce(topic, f"{topic} {self.produced}".encode())
                    self.produced += 1
            producer.poll(0)
        if left := producer.flush(STOP_S):
            raise KcoreError(f"{left} of {self.produced} records could not be produced")

    # ---- acts

    def _act(self, act: Act) -> None:
        if act.what == "join":
            self._join(act.group)
        elif len(self._actors[act.group]) > 1:  # at least one member always stays
            name, process = self._actors[act.group].pop(0)
            if act.what == "crash":
                process.kill()
                process.wait()
                self._say(act.group, f"{name} is killed: its partitions wait for its session to end")
            else:
                process.terminate()
                self._leaving.append(process)
                self._say(act.group, f"{name} leaves")

    def _join(self, group: str) -> None:
        cast = GROUPS[group]
        self._names += 1
        name = f"{group}-{self._names}"
        arguments = [cast.protocol, self._bootstrap, group, cast.topic, name]
        if cast.protocol == "transactional":
            arguments += ["invoices", str(self._seed + self._names)]
        process = subprocess.Popen(
            [sys.executable, "-m", "kcore.demo.actor", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._actors[group].append((name, process))
        self._say(group, f"{name} joins ({cast.protocol})")

    def _end(self) -> None:
        alive = [process for actors in self._actors.values() for _, process in actors] + self._leaving
        for process in alive:
            if process.poll() is None:
                process.terminate()
        for process in alive:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
