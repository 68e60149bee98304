# Made by tools/generate_sync.py from _async/job.py: change that file, then run the program.
"""The jobs of a work queue: records of a share group that a broker has locked for a worker."""

from __future__ import annotations

from datetime import datetime

import kcore
from kcore.client.aio.broker import Broker
from kcore.client.share_consumer import Acknowledgement, SharePartition, ShareSession
from kcore.node._sync.backend import Lock, now_ms
from kcore.node.requests import AcquiredBatch
from kcore.node.types import Record


class ShareLink:
    """A worker's share session with one broker. The worker holds `lock` during each request of the session."""

    def __init__(self, broker: Broker, session: ShareSession) -> None:
        self.broker = broker
        self.session = session
        self.lock = Lock()


class FetchedJobs:
    """A batch with acquired records. The queue decodes the batch once the program has taken all earlier jobs."""

    __slots__ = ("batch", "link", "lock_ends_ms", "lock_timeout_ms", "session", "share_partition")

    def __init__(
        self, link: ShareLink, share_partition: SharePartition, batch: AcquiredBatch, lock_timeout_ms: int
    ) -> None:
        self.link = link
        self.share_partition = share_partition
        self.batch = batch
        self.session = link.session.number
        self.lock_timeout_ms = lock_timeout_ms
        self.lock_ends_ms = now_ms() + lock_timeout_ms


class Job:
    """A record of a share group that the broker has locked for this worker.

    Without an acknowledgement or a renewal the lock expires, by default after 30 seconds, and the group delivers the
    record to a worker again. After the last allowed delivery, by default the fifth, the group archives it.

    Attributes:
        record: the locked record, which the program processes.
        delivery_count: the number of deliveries, including the current delivery.
        lock_timeout: the seconds after which the lock expires.
    """

    def __init__(
        self,
        queue: kcore.Queue,
        link: ShareLink,
        share_partition: SharePartition,
        record: Record,
        deliveries: int,
    ) -> None:
        self._queue = queue
        self._link = link
        self._share_partition = share_partition
        self._session = link.session.number
        self._lock_ends_ms = 0
        self._acknowledged = False
        self._explicit = False  # the program has tried to acknowledge the job: it must not be accepted automatically
        self.record = record
        self.delivery_count = deliveries
        self.lock_timeout = 0.0

    def __repr__(self) -> str:
        record = f"{self.topic}-{self.partition}, offset {self.offset}"
        return f"Job({record}, delivery_count={self.delivery_count})"

    @property
    def value(self) -> bytes | None:
        """The value of the record."""
        return self.record.value

    @property
    def key(self) -> bytes | None:
        """The key of the record, or None."""
        return self.record.key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers of the record: names and values."""
        return self.record.headers

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """The partition of the record."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.record.offset

    @property
    def timestamp(self) -> datetime:
        """The timestamp of the record."""
        return self.record.timestamp

    @property
    def acknowledged(self) -> bool:
        """True once the job is accepted, released or rejected."""
        return self._acknowledged

    def accept(self) -> None:
        """Reports the job as done. The acknowledgement is durable when this returns.

        Raises:
            InvalidRecordStateError: the lock has expired, so the group may deliver the job again.
            KafkaError, ConnectionClosedError, TimeoutError: the acknowledgement is refused or lost.
        """
        self._queue._acknowledge(self, Acknowledgement.ACCEPT)

    def release(self) -> None:
        """Gives the job back: the group delivers it again, or archives it after the last allowed delivery.

        Raises:
            InvalidRecordStateError: the lock has expired.
            KafkaError, ConnectionClosedError, TimeoutError: the acknowledgement is refused or lost.
        """
        self._queue._acknowledge(self, Acknowledgement.RELEASE)

    def reject(self) -> None:
        """Reports that no worker can process the job: the group archives it.

        Raises:
            InvalidRecordStateError: the lock has expired.
            KafkaError, ConnectionClosedError, TimeoutError: the acknowledgement is refused or lost.
        """
        self._queue._acknowledge(self, Acknowledgement.REJECT)

    def renew(self) -> None:
        """Restarts the timeout of the lock (KIP-1222).

        Raises:
            InvalidRecordStateError: the lock has expired, or the group does not allow renewals.
            KafkaError, ConnectionClosedError, TimeoutError: the renewal is refused or lost.
        """
        self._queue._acknowledge(self, Acknowledgement.RENEW)

    def _lock(self, timeout_ms: int) -> None:
        self.lock_timeout = timeout_ms / 1000
        self._lock_ends_ms = now_ms() + timeout_ms
