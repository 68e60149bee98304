from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

class BatchEvent(Protocol):
    """The event that is set when a batch is complete. `Accumulator` creates an event for each batch."""

    def set(self) -> None: ...

@final
class ProducerBatch:
    """The records of one partition that are sent together."""

    @property
    def created_s(self) -> float: ...
    @property
    def done(self) -> Any: ...
    error: Exception | None
    base_offset: int
    log_time_ms: int
    sequence: tuple[int, int, int] | None
    attempts: int
    in_flight: bool
    may_be_stored: bool
    @property
    def number(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    def build(self, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes: ...
    def complete(self, error: Exception | None) -> None: ...

class DeliveryBase:
    """The base of synchronous and asynchronous deliveries: a record's batch, position in the batch, and timestamp."""

    @property
    def batch(self) -> ProducerBatch: ...
    @property
    def partition(self) -> Any: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...

@final
class PartitionQueue:
    """The unacknowledged batches of one partition. `kcore.client.delivery` selects the next batch to send."""

    def __init__(self, partition: Any) -> None: ...
    @property
    def partition(self) -> Any: ...
    @property
    def batches(self) -> deque[ProducerBatch]: ...
    not_before_s: float
    sequence: tuple[int, int, int]
    chain: int
    @property
    def assigned(self) -> int: ...
    def assign(self, batch: ProducerBatch, sequence: tuple[int, int, int]) -> None: ...
    def remove(self, batch: ProducerBatch) -> bool: ...

@final
class Accumulator:
    """The batches of a producer that no broker has acknowledged yet."""

    def __init__(
        self,
        delivery_type: type[DeliveryBase],
        partition_type: Callable[[str, int], Any],
        event_type: Callable[[], BatchEvent],
        *,
        batch_bytes: int,
        buffer_bytes: int,
        burst_bytes: int,
        compression: int,
        compress: Callable[[int, bytes], bytes],
        to_bytes: Callable[[Any], bytes | None],
        measure: Callable[[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]], int],
        on_batch: Callable[[], None],
        monotonic: Callable[[], float],
        clock_ms: Callable[[], int] | None = None,
        loop: object = None,
        running_loop: Callable[[], object] | None = None,
    ) -> None: ...
    closed: bool
    @property
    def queues(self) -> dict[Any, PartitionQueue]: ...
    @property
    def size(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def knows(self, topic: str, partition: int) -> bool: ...
    def add_topic(self, topic: str, partitions: int) -> None: ...
    def rest(self) -> None: ...
    def remove(self, queue: PartitionQueue, batch: ProducerBatch) -> None: ...
    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> tuple[ProducerBatch, ...]: ...
    def clear(self) -> list[ProducerBatch]: ...
    def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Any: ...
