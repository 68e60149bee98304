"""A client process of the Spark demonstration: a consumer, or a transactional pipeline.

    python -m kcore.demo.actor PROTOCOL BOOTSTRAP GROUP TOPIC CLIENT_ID
    python -m kcore.demo.actor transactional BOOTSTRAP GROUP TOPIC CLIENT_ID OUT SEED

On SIGTERM the process leaves its group; SIGKILL simulates a crash.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from typing import Any

SESSION_TIMEOUT_MS = 2_000
HEARTBEAT_INTERVAL_MS = 400
TRANSACTION_TIMEOUT_MS = 1_500
BATCH_RECORDS = 20
PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
ABORTED, FORGOTTEN = 0.2, 0.05  # the shares of aborted and of unfinished transactions


def _consumer(protocol: str, bootstrap: str, group: str, client_id: str) -> Any:
    from confluent_kafka import Consumer  # noqa: PLC0415

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        **PROTOCOLS[protocol],
    }
    if protocol != "consumer":
        settings |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}
    return Consumer(settings)


def consume(protocol: str, bootstrap: str, group: str, topic: str, client_id: str, stop: threading.Event) -> None:
    """Reads and commits until `stop` is set."""
    from confluent_kafka import KafkaException  # noqa: PLC0415

    consumer = _consumer(protocol, bootstrap, group, client_id)
    consumer.subscribe([topic])
    while not stop.is_set():
        if any(message.error() is None for message in consumer.consume(BATCH_RECORDS, timeout=0.2)):
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                continue  # a rebalance came first: the records will be delivered again
    consumer.close()


def pipe(bootstrap: str, group: str, topic: str, client_id: str, out: str, seed: int, stop: threading.Event) -> None:
    """Reads, writes and commits in transactions; aborts some, and leaves some open until they time out."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415

    chance = random.Random(seed)
    consumer = _consumer("range", bootstrap, group, client_id)
    consumer.subscribe([topic])
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": client_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "log_level": 0,
    }
    producer: Any = None
    while not stop.is_set():
        messages = [message for message in consumer.consume(BATCH_RECORDS, timeout=0.2) if message.error() is None]
        if not messages:
            continue
        try:
            if producer is None:
                producer = Producer(settings)
                producer.init_transactions(10)
            producer.begin_transaction()
            for message in messages:
                producer.produce(out, message.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 10
            )
            draw = chance.random()
            if draw < FORGOTTEN:
                time.sleep(2 * TRANSACTION_TIMEOUT_MS / 1000)
            if FORGOTTEN <= draw < FORGOTTEN + ABORTED:
                producer.abort_transaction(10)
            else:
                producer.commit_transaction(10)
        except KafkaException:
            producer = None  # fenced, timed out or rebalanced: start again with a new producer
    consumer.close()


def main() -> None:
    """Runs the actor until SIGTERM."""
    kind, bootstrap, group, topic, client_id, *more = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if kind == "transactional":
        pipe(bootstrap, group, topic, client_id, more[0], int(more[1]), stop)
    else:
        consume(kind, bootstrap, group, topic, client_id, stop)


if __name__ == "__main__":
    main()
