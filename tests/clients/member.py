"""A consumer in its own process, so that tests can kill it; prints its events as JSON lines.

    python member.py '{"library": "aiokafka", "bootstrap": "...", "group": "...", "topics": ["..."], ...}'

The consumer leaves its group when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterable
from typing import Any

POLL_S = 0.1
METADATA_MAX_AGE_MS = 1_000


class EventPrinter:
    """The output of a member process: prints events when they change."""

    def __init__(self) -> None:
        self._owned: list[list[Any]] | None = None

    def say(self, event: str, **fields: Any) -> None:
        """Prints one event as a line."""
        print(json.dumps({"event": event, **fields}), flush=True)

    def owns(self, assignment: Iterable[Any]) -> None:
        """Prints the owned partitions after a change."""
        owned = sorted([part.topic, part.partition] for part in assignment)
        if owned != self._owned:
            self._owned = owned
            self.say("owns", partitions=owned)

    def revoked(self, parts: Iterable[Any]) -> None:
        """Prints the partitions that the library's listener reports as revoked."""
        taken = sorted([part.topic, part.partition] for part in parts)
        if taken:
            self.say("revoked", partitions=taken)

    def record(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """Prints a received record."""
        self.say("record", topic=topic, partition=partition, offset=offset, value=(value or b"").decode())


def confluent(options: dict[str, Any], printer: EventPrinter, stop: threading.Event) -> None:
    """Consumes with librdkafka (confluent-kafka)."""
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    protocol, _, assignor = options["strategy"].partition(":")
    if protocol == "consumer":  # KIP-848: the group sets the heartbeat interval and the assignor
        settings |= {"group.protocol": "consumer"} | ({"group.remote.assignor": assignor} if assignor else {})
    else:
        settings |= {
            "session.timeout.ms": options["session_timeout_ms"],
            "heartbeat.interval.ms": options["heartbeat_interval_ms"],
            "partition.assignment.strategy": options["strategy"],
        }
    if options["instance_id"]:
        settings["group.instance.id"] = options["instance_id"]
    consumer = Consumer(settings)
    consumer.subscribe(options["topics"], on_revoke=lambda _, parts: printer.revoked(parts))
    while not stop.is_set():
        messages = [message for message in consumer.consume(100, timeout=POLL_S) if message.error() is None]
        printer.owns(consumer.assignment())
        for message in messages:
            printer.record(message.topic(), message.partition(), message.offset(), message.value())
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                printer.say("commit failed", reason=error.args[0].name())
            else:
                printer.say("committed")
    consumer.close()


def kafka_python(options: dict[str, Any], printer: EventPrinter, stop: threading.Event) -> None:
    """Consumes with kafka-python, a pure Python client."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaConnectionError, KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

        def on_partitions_revoked(self, revoked: Any) -> None:
            printer.revoked(revoked)

    strategies = {kind.name: kind for kind in (RangePartitionAssignor, RoundRobinPartitionAssignor)}
    strategies[CooperativeStickyAssignor.name] = CooperativeStickyAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options["instance_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options["session_timeout_ms"],
        heartbeat_interval_ms=options["heartbeat_interval_ms"],
        partition_assignment_strategy=[strategies[options["strategy"]]],
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
        reconnect_backoff_max_ms=200,
    )
    consumer.subscribe(options["topics"], listener=Listener())
    # Without metadata it would join, get the partitions, and rejoin; kafka-python 3.0 loses that second join if it
    # ends between two polls.
    for topic in options["topics"]:
        consumer.partitions_for_topic(topic)
    while not stop.is_set():
        try:
            polled = consumer.poll(timeout_ms=POLL_S * 1000, max_records=100)
        except KafkaConnectionError:  # this client raises if the server is away
            continue
        printer.owns(consumer.assignment())
        for part, records in polled.items():
            for record in records:
                printer.record(part.topic, part.partition, record.offset, record.value)
        if polled:
            try:
                consumer.commit()
            except KafkaError as error:
                printer.say("commit failed", reason=type(error).__name__)
            else:
                printer.say("committed")
    consumer.close()


async def _aiokafka(options: dict[str, Any], printer: EventPrinter, stop: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            pass

        async def on_partitions_revoked(self, revoked: Any) -> None:
            printer.revoked(revoked)

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options["instance_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options["session_timeout_ms"],
        heartbeat_interval_ms=options["heartbeat_interval_ms"],
        partition_assignment_strategy=(strategies[options["strategy"]],),
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
    )
    consumer.subscribe(options["topics"], listener=Listener())
    await consumer.start()
    try:
        while not stop.is_set():
            polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=100)
            printer.owns(consumer.assignment())
            for part, records in polled.items():
                for record in records:
                    printer.record(part.topic, part.partition, record.offset, record.value)
            if polled:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    printer.say("commit failed", reason=type(error).__name__)
                else:
                    printer.say("committed")
    finally:
        await consumer.stop()


def aiokafka(options: dict[str, Any], printer: EventPrinter, stop: threading.Event) -> None:
    """Consumes with aiokafka, an asyncio client."""
    asyncio.run(_aiokafka(options, printer, stop))


def kcores(options: dict[str, Any], printer: EventPrinter, stop: threading.Event) -> None:
    """Consumes with kcore's own client."""
    import kcore
    from kcore.errors import CommitFailedError, KafkaError

    protocol, _, assignor = options["strategy"].partition(":")
    settings: dict[str, Any] = {"protocol": "consumer", "server_assignor": assignor or None}
    if protocol != "consumer":
        settings = {
            "protocol": "classic",
            "assignors": [options["strategy"]],
            "session_timeout": options["session_timeout_ms"] / 1000,
            "heartbeat_interval": options["heartbeat_interval_ms"] / 1000,
        }
    settings |= {"instance_id": options["instance_id"], "metadata_max_age": METADATA_MAX_AGE_MS / 1000}
    with (
        kcore.connect(options["bootstrap"], client_id=options["client_id"] or "kcore") as node,
        node.group(options["group"]).consume(
            options["topics"], auto_commit=None, on_revoked=printer.revoked, **settings
        ) as consumer,
    ):
        while not stop.is_set():
            records = consumer.poll(POLL_S)
            printer.owns(consumer.assignment)
            for record in records:
                printer.record(record.topic, record.partition, record.offset, record.value)
            if records:
                try:
                    consumer.commit()
                except (CommitFailedError, KafkaError) as error:
                    printer.say("commit failed", reason=type(error).__name__)
                else:
                    printer.say("committed")


LIBRARIES = {"kcore": kcores, "confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}


def _until_input_ends(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main() -> None:
    """Consumes until the standard input ends."""
    options = json.loads(sys.argv[1])
    logging.disable(logging.CRITICAL)
    stop = threading.Event()
    threading.Thread(target=_until_input_ends, args=(stop,), daemon=True).start()
    printer = EventPrinter()
    LIBRARIES[options["library"]](options, printer, stop)
    printer.say("left")


if __name__ == "__main__":
    main()
