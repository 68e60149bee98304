"""Distributes the shards of a service over its workers, with a virtual topic, Kafka consumers and fencing.

    python examples/virtual_topics.py                       the whole demonstration, with its own server
    python examples/virtual_topics.py worker HOST:PORT ID   one worker, against any Kafka-compatible server

Twelve shards of accounts are distributed over workers that join, leave, and freeze. The topic has partitions but no
data, and no record is produced. Each worker increments the counts of the shards it owns, and stores a shard's count as
its committed offset. If a worker freezes for longer than its session, its shards move, and its late commit is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kcore.client import Connection
from kcore.client.virtual_topics import declare_virtual_topic
from kcore.testing import ServerProcess

TOPIC, GROUP, SHARDS = "accounts", "account-workers", 12
TIME_LIMIT_S = 60.0
WORK_S = 0.02

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}


# ---- a worker


def work(bootstrap: str, worker_id: str) -> None:
    """Increments the counts of the owned shards until the input ends. Prints these shards and every refused commit.

    After a line of input, the worker freezes between reading a shard's count and committing the next one.
    """
    with Connection.to(bootstrap) as connection:
        declare_virtual_topic(connection, TOPIC, SHARDS)  # the first worker creates it
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "client.id": worker_id,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    freezing, ending = threading.Event(), threading.Event()
    threading.Thread(target=lambda: ([freezing.set() for _ in sys.stdin], ending.set()), daemon=True).start()
    owned: list[int] | None = None
    while not ending.is_set():
        consumer.poll(0.02)  # only here does the client detect lost shards, so a late commit has the old epoch
        assignment = consumer.assignment()
        shards = sorted(part.partition for part in assignment)
        if shards != owned:
            owned = shards
            print_event(event="owns", shards=shards)
        try:
            for shard in consumer.committed(assignment, timeout=10) if assignment else []:
                count = max(shard.offset, 0)
                time.sleep(WORK_S)  # simulates the work on the shard
                if freezing.is_set():
                    freezing.clear()
                    os.kill(os.getpid(), signal.SIGSTOP)
                consumer.commit(offsets=[TopicPartition(TOPIC, shard.partition, count + 1)], asynchronous=False)
        except KafkaException as error:
            print_event(event="refused", reason=error.args[0].name())
    consumer.close()


def print_event(**line: object) -> None:
    """Prints one line of JSON."""
    print(json.dumps(line), flush=True)


# ---- the demonstration


class Worker:
    """A worker process, with the shards that it last reported as its own, and the number of refused commits."""

    def __init__(self, bootstrap: str, worker_id: str) -> None:
        self.worker_id = worker_id
        self.shards: list[int] = []
        self.refused = 0
        self.process = subprocess.Popen(
            [sys.executable, __file__, "worker", bootstrap, worker_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line = json.loads(text)
            if line["event"] == "owns":
                self.shards = line["shards"]
            else:
                self.refused += 1

    def freeze(self) -> None:
        """Stops the worker between a read and the following commit. Returns when the worker has stopped."""
        assert self.process.stdin is not None
        self.process.stdin.write("freeze\n")
        self.process.stdin.flush()
        stopped = os.WSTOPPED | os.WNOHANG
        wait(lambda: os.waitid(os.P_PID, self.process.pid, stopped) is not None, f"{self.worker_id} freezes")

    def signal(self, number: signal.Signals) -> None:
        """Sends SIGCONT to resume the worker, or SIGKILL to end it."""
        os.kill(self.process.pid, number)

    def leave(self) -> None:
        """Ends the worker cleanly: the worker leaves its group."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(TIME_LIMIT_S)


def wait(condition: Callable[[], bool], description: str) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + TIME_LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not within {TIME_LIMIT_S:.0f} s: {description}")
        time.sleep(0.02)


def share(workers: Sequence[Worker]) -> None:
    """Waits until each shard has one owner and the workers own about the same number of shards. Prints the owners."""
    fewest = SHARDS // len(workers)

    def shared() -> bool:
        owned = [worker.shards for worker in workers]
        return (
            sorted(shard for shards in owned for shard in shards) == list(range(SHARDS))
            and min(map(len, owned)) >= fewest
        )

    wait(shared, f"{[worker.worker_id for worker in workers]} share all shards")
    print("   ", "   ".join(f"{worker.worker_id}: {worker.shards}" for worker in workers))


def demonstrate() -> None:
    """Runs the demonstration: workers join, leave, freeze and are killed, and every shard gets exactly one owner
    again.
    """
    workers: list[Worker] = []
    with ServerProcess(None, SETTINGS) as server:
        try:
            print("two workers start")
            workers += [Worker(server.bootstrap, "ann"), Worker(server.bootstrap, "bob")]
            share(workers)
            print("a third worker joins: shards move one by one, the others continue")
            workers.append(Worker(server.bootstrap, "cyd"))
            share(workers)
            ann, bob, cyd = workers
            print("ann freezes for longer than her session: the others get her shards")
            frozen_shards = list(ann.shards)
            ann.freeze()
            share([bob, cyd])
            print(f"ann continues in the middle of shards {frozen_shards}: her write is refused, and she rejoins")
            refused = ann.refused
            ann.signal(signal.SIGCONT)
            wait(lambda: ann.refused > refused, "ann's late write is refused")
            share([ann, bob, cyd])
            print("bob is killed, cyd leaves")
            bob.signal(signal.SIGKILL)
            cyd.leave()
            share([ann])
            print("ann leaves: nothing was lost, nothing was owned twice")
            ann.leave()
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], sys.argv[3])
    else:
        demonstrate()
