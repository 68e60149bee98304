"""Copies a topic to another with exactly-once semantics while the server and the copier are killed.

    python examples/exactly_once_copy.py                  the whole demonstration, with its own server
    python examples/exactly_once_copy.py copy HOST:PORT   only the copier, against any Kafka-compatible server

The copier consumes records, transforms them, and produces them together with the consumed offsets in one transaction
per batch (`send_offsets_to_transaction`). The demonstration kills the server and the copier with SIGKILL at random
moments. At the end, a read_committed consumer must find each record once and in order.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE, SINK = "orders", "orders-checked"
GROUP = TRANSACTIONAL_ID = "order-checker"
PARTITIONS = 4
BATCH = 50
TIME_LIMIT_S = 60.0
CALL_S = 4.0  # time limit of one client call, after which the copier starts again

CLIENT = {
    # The server or the copier may be killed at any moment: retry soon.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    # While no broker responds, librdkafka 2.16 discards broker addresses, and may then wait without end for a discarded
    # address. The address does not change here.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


def transform(value: bytes) -> bytes:
    return b"checked " + value


# ---- the copier


def copy(bootstrap: str) -> None:
    """Copies until it is killed. Prints the number of records after each commit."""
    revoked: list[object] = []  # partitions revoked from the consumer since the last batch
    while True:
        consumer = Consumer(
            CLIENT
            | {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 1000,
                "heartbeat.interval.ms": 200,
            }
        )
        producer = Producer(
            CLIENT | {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID, "linger.ms": 0}
        )
        try:
            producer.init_transactions(CALL_S)
            consumer.subscribe([SOURCE], on_revoke=lambda _, parts: revoked.extend(parts))
            while True:
                copy_batch(consumer, producer, revoked)
        except KafkaException as error:
            # The producer is fenced, or its transaction timed out: start again from the committed offsets.
            print(f"again: {error}", file=sys.stderr, flush=True)
            consumer.close()


def copy_batch(consumer: Consumer, producer: Producer, revoked: list[object]) -> None:
    """Copies one batch in one transaction."""
    messages = [message for message in consumer.consume(BATCH, 0.1) if not message.error()]
    if revoked:
        # A rebalance revoked some of these partitions: their records will be delivered again from the committed
        # offsets.
        revoked.clear()
        rewind(consumer)
        return
    if not messages:
        return
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(SINK, transform(message.value()), partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), CALL_S
        )
        end(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        end(producer.abort_transaction)
        rewind(consumer)
    else:
        print(len(messages), flush=True)


def end(operation: Callable[[float], None]) -> None:
    """Commits or aborts, with retries."""
    while True:
        try:
            operation(CALL_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def rewind(consumer: Consumer) -> None:
    """Seeks back to the committed offsets."""
    for partition in consumer.committed(consumer.assignment(), CALL_S):
        partition.offset = max(partition.offset, 0)
        consumer.seek(partition)


# ---- the demonstration


class Copier:
    """A copier in its own process.

    Attributes:
        copied: the number of records that its commits contain.
    """

    def __init__(self, bootstrap: str) -> None:
        self.copied = 0
        self._bootstrap = bootstrap
        self.start()

    def start(self) -> None:
        """Starts or restarts the copier."""
        command = [sys.executable, __file__, "copy", self._bootstrap]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.copied += int(line)

    def has(self, records: int) -> bool:
        """Returns True if the copier has copied at least this number of records."""
        assert self._process.poll() is None, "the copier ended by itself"
        return self.copied >= records

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def fill(bootstrap: str, records: int) -> None:
    """Creates the topics and the records to copy."""
    admin = AdminClient(CLIENT | {"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (SOURCE, SINK)]).values():
        future.result()
    producer = Producer(CLIENT | {"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(records):
        producer.produce(SOURCE, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def read_committed(bootstrap: str, topic: str) -> Iterator[tuple[int, bytes]]:
    """Reads (partition, value) of all committed records."""
    consumer = Consumer(
        CLIENT
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    at_end: set[int] = set()
    deadline_s = time.monotonic() + TIME_LIMIT_S
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline_s, "the sink cannot be read"
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                yield message.partition(), message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    consumer.close()


def all_committed(consumer: Consumer, records: int) -> bool:
    """Returns True if the group has committed all records of the source."""
    try:
        partitions = consumer.committed([TopicPartition(SOURCE, index) for index in range(PARTITIONS)], 10)
    except KafkaException:
        return False
    return sum(max(partition.offset, 0) for partition in partitions) == records


def demonstrate(records: int, rounds: int, seed: int, data: Path, report: Callable[[str], None] = print) -> None:
    """Kills the server or the copier `rounds` times while `records` are copied, and checks the result.

    Raises:
        AssertionError: a record is missing, duplicated or out of order.
    """
    from kcore.testing import ServerProcess  # noqa: PLC0415 - the copier alone needs no kcore

    chance = random.Random(seed)
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with ServerProcess(data, settings) as server:
        fill(server.bootstrap, records)
        copier = Copier(server.bootstrap)
        try:
            moments = sorted(chance.sample(range(records // 20, records * 9 // 10), rounds))
            for number, moment in enumerate(moments):
                wait_for(lambda moment=moment: copier.has(moment), f"{moment} records are copied")
                time.sleep(chance.random() * 0.03)
                if number % 3 == 2:
                    copier.kill()
                    copier.start()
                    report(f"{copier.copied} copied: killed the copier")
                else:
                    server.kill()
                    server.start()
                    report(f"{copier.copied} copied: killed the server, recovered {server.recovered}")
            group = Consumer(CLIENT | {"bootstrap.servers": server.bootstrap, "group.id": GROUP})
            wait_for(lambda: all_committed(group, records), "all records are copied")
            group.close()
        finally:
            copier.kill()
        copied = list(read_committed(server.bootstrap, SINK))
    for index in range(PARTITIONS):
        values = [value for partition, value in copied if partition == index]
        expected = [transform(str(number).encode()) for number in range(index, records, PARTITIONS)]
        assert values == expected, f"partition {index}: {len(values)} records, {len(expected)} expected"
    report(f"{len(copied)} records, each once")


def wait_for(condition: Callable[[], bool], description: str) -> None:
    deadline_s = time.monotonic() + TIME_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"it took too long until {description}"
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=["demonstrate", "copy"], default="demonstrate")
    parser.add_argument("bootstrap", nargs="?", metavar="HOST:PORT")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    if options.verb == "copy":
        copy(options.bootstrap)
        return
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        demonstrate(options.records, options.rounds, seed, Path(folder) / "data")


if __name__ == "__main__":
    main()
