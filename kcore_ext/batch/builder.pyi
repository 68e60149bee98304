from collections.abc import Callable, Sequence
from typing import final

from kcore_ext.batch.header import AnyBuffer

@final
class BatchBuilder:
    """Collects records and builds a batch of them."""

    def __init__(
        self,
        max_size_bytes: int,
        *,
        base_timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        compression: int = 0,
        compress: Callable[[int, bytes], bytes] | None = None,
        log_append_time: bool = False,
    ) -> None: ...
    @property
    def max_size_bytes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    def append(
        self,
        timestamp_ms: int,
        key: AnyBuffer | None,
        value: AnyBuffer | None,
        headers: Sequence[tuple[str, AnyBuffer | None]] = (),
        *,
        offset_delta: int = -1,
    ) -> bool: ...
    def build(self, base_offset: int = 0, leader_epoch: int = -1, *, last_offset_delta: int = -1) -> bytes: ...
    def build_bytearray(
        self, base_offset: int = 0, leader_epoch: int = -1, *, last_offset_delta: int = -1
    ) -> bytearray: ...

def build_control_batch(
    control_type: int,
    coordinator_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes: ...
