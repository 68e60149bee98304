"""Interceptors: user code that receives every record of a producer or a consumer, and can replace it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kcore.node.types import HeaderList, OffsetAndMetadata, Record, RecordMetadata, TopicPartition
from kcore.process_logging import log_name

T = TypeVar("T")

logger = logging.getLogger(__name__)

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record that a producer is about to append.

    Attributes:
        topic: the name of the topic.
        value: bytes, a text or None, as in `append`.
        key: bytes, a text or None, as in `append`.
        headers: names and values.
        partition: the partition number; None: the producer chooses the partition.
        timestamp_ms: the timestamp in milliseconds since the epoch; None: now.
    """

    topic: str
    value: bytes | str | None
    key: bytes | str | None = None
    headers: HeaderList = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """The base of producer interceptors: each method may be overridden.

    If an interceptor raises, or `on_send` returns no record, the error is logged, and the next interceptor receives the
    record unchanged.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record to append instead of `record`; called before the partition is chosen."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Receives the result of a record.

        After an error, the offset is -1. If the producer has not chosen a partition, the partition is -1.
        """


class ConsumerInterceptor:
    """The base of consumer interceptors: each method may be overridden.

    If an interceptor raises, or `on_consume` returns no list, the error is logged, and the next interceptor receives
    the records unchanged.
    """

    def on_consume(self, records: list[Record]) -> list[Record]:
        """Returns the records for the program, instead of `records`. Records left out also count as processed."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Receives the offsets of a successful commit, before the callback of the commit runs."""


def interceptors_of(interceptors: Iterable[T], method: str) -> tuple[T, ...]:
    """Returns the interceptors in an argument.

    Args:
        interceptors: the argument of the caller of the API.
        method: a method that each interceptor has.

    Raises:
        TypeError: the argument is not a list of interceptors, or it has a class instead of an object.
    """
    listed = tuple(interceptors) if isinstance(interceptors, Iterable) else None
    if listed is None or any(isinstance(each, type) or not callable(getattr(each, method, None)) for each in listed):
        raise TypeError(f"interceptors={interceptors!r}; valid: a list of objects with the method {method}")
    return listed


def _topic_of(subject: object) -> str:
    """Returns the topic that an interceptor was called about, for log lines.

    Args:
        subject: a record, the metadata of a record, a list of records, or a mapping of partitions.
    """
    with contextlib.suppress(Exception):  # an interceptor may return any object
        first = next(iter(subject), None) if isinstance(subject, list | Mapping) else subject
        return str(getattr(first, "topic", "unknown"))
    return "unknown"


def intercept(calls: Iterable[Callable[[T], T]], value: T) -> T:
    """Passes a record or a list of records through interceptors.

    An interceptor that raises, or that returns an object of another type, leaves the value unchanged.
    """
    for call in calls:
        try:
            returned: object = call(value)
            if isinstance(returned, type(value)):
                value = returned
            else:
                logger.error(
                    "client: the interceptor's method %s returned an object of type %s for topic %r; the records stay "
                    "as they were before its call; correct the method: it must return %s",
                    log_name(call),
                    type(returned).__name__,
                    _topic_of(value),
                    "a list of records" if isinstance(value, list) else "a kcore.ProducerRecord",
                )
        except Exception:
            logger.exception(
                "client: the interceptor's method %s raised an error about topic %r; the records stay as they were "
                "before its call; correct the interceptor",
                log_name(call),
                _topic_of(value),
            )
    return value


def notify(calls: Iterable[Callable[[], None]]) -> None:
    """Calls all interceptors, even if an interceptor raises an exception."""
    for call in calls:
        try:
            call()
        except Exception:
            logger.exception(
                "client: the interceptor's method %s raised an error about topic %r; the client continues; correct the "
                "interceptor",
                log_name(call),
                _topic_of(call.args[0]) if isinstance(call, partial) else "unknown",
            )
