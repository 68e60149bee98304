# Made by tools/generate_sync.py from _async/delivery.py: change that file, then run the program.
"""The results of appended records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.node._sync.backend import monotonic
from kcore.node.arguments import check_wait
from kcore.node.types import RecordMetadata, TopicPartition
from kcore_ext.client.accumulator import DeliveryBase


class Delivery(DeliveryBase):
    """The result of one appended record, which arrives later. `producer.append` returns this object at once.

    Attributes:
        partition: the topic and the partition of the record.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the compiled base does not know the class of its partitions

        @property
        def partition(self) -> TopicPartition: ...

    def __repr__(self) -> str:
        batch = self.batch
        state = f"offset {self.offset}" if batch.error is None else f"failed: {batch.error!r}"
        return f"Delivery({self.partition}, {state if self.done else 'not stored yet'})"

    @property
    def done(self) -> bool:
        """True once the record is stored, or has failed."""
        batch = self.batch
        return batch.done.is_set() and self.batch is batch  # the batch may have been split between the two reads

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is stored, and returns its partition and offset.

        Args:
            timeout: the time limit of this wait in seconds; None: the wait ends at the producer's timeout.

        Raises:
            KafkaError: the server refused the record's batch.
            TimeoutError: the batch was not stored within the producer's timeout, or `timeout` has passed.
        """
        check_wait("timeout", timeout)
        until_s = None if timeout is None else monotonic() + timeout
        batch = None
        while batch is not self.batch:  # the broker may refuse a batch as too large: then its parts replace it
            batch = self.batch
            if not batch.done.wait(None if until_s is None else until_s - monotonic()):
                raise TimeoutError(f"the record is not stored after {timeout:g} s; the producer keeps trying")
        if batch.error is not None:
            raise batch.error
        topic, partition = self.partition
        return RecordMetadata(topic, partition, self.offset, self.timestamp_ms)
