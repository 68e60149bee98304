"""Shared code of the programs: clients with short intervals, and crashes that a test causes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import confluent_kafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the import of kafka-python gives such warnings
    import kafka

GROUP = "g"
TOPIC = "jobs"
POLL_S = 0.01

Handle = Callable[[Any], None]
Done = Callable[[], bool]


class CrashError(Exception):
    """A simulated crash: the program does not catch it, and the test starts the program again."""


class CrashOnce:
    """A handler that collects records, and crashes once, before or after it has processed a chosen record.

    Args:
        offset: the offset of the record.
        after: True to crash after the record is processed.
    """

    def __init__(self, offset: int, *, after: bool = False) -> None:
        self.processed: list[Any] = []
        self._offset = offset
        self._after = after
        self._crashed = False

    def __call__(self, record: Any) -> None:
        """Processes a record."""
        offset = record.offset() if callable(record.offset) else record.offset
        crashes = not self._crashed and offset == self._offset
        self._crashed = self._crashed or crashes
        if crashes and not self._after:
            raise CrashError
        self.processed.append(record)
        if crashes:
            raise CrashError


def run_twice(program: Callable[[], None]) -> None:
    """Runs a program, and starts it again if it crashes."""
    try:
        program()
    except CrashError:
        program()


def confluent_consumer(bootstrap: str, **settings: Any) -> confluent_kafka.Consumer:
    """Returns a confluent-kafka consumer without automatic commits."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 50,
            "log_level": 0,
            **settings,
        }
    )


def confluent_producer(bootstrap: str, **settings: Any) -> confluent_kafka.Producer:
    """Returns a confluent-kafka producer."""
    return confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "retry.backoff.ms": 1, "log_level": 0, **settings}
    )


def python_consumer(bootstrap: str, **settings: Any) -> kafka.KafkaConsumer:
    """Returns a kafka-python consumer without automatic commits."""
    return kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        **{
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 50,
            "retry_backoff_ms": 5,
            **settings,
        },
    )


def records(consumer: confluent_kafka.Consumer, done: Done):
    """Yields the records of a confluent-kafka consumer until `done()` is true. Raises errors of the client."""
    while not done():
        record = consumer.poll(POLL_S)
        if record is None:
            continue
        if record.error() is not None:
            raise confluent_kafka.KafkaException(record.error())
        yield record
