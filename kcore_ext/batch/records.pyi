from collections.abc import Callable, Iterable, Iterator
from typing import final

from kcore_ext.batch.header import AnyBuffer, BatchHeader

DEFAULT_MAX_DECOMPRESSED_BYTES: int

Decompress = Callable[[int, memoryview, int], bytes]

@final
class Record:
    """One record."""

    def __init__(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

@final
class ControlMarker:
    """The content of a control batch."""

    @property
    def type(self) -> int: ...
    @property
    def coordinator_epoch(self) -> int: ...
    @property
    def is_end_marker(self) -> bool: ...
    @property
    def is_commit(self) -> bool: ...

def iter_records(
    buffer: AnyBuffer,
    position: int = 0,
    *,
    decompress: Decompress | None = None,
    max_decompressed_bytes: int = ...,
) -> Iterator[Record]: ...
def iter_entries(
    buffer: AnyBuffer,
    position: int = 0,
    *,
    decompress: Decompress | None = None,
    max_decompressed_bytes: int = ...,
) -> Iterator[tuple[int, int, bytes | None, bytes | None]]: ...
def validate(
    buffer: AnyBuffer,
    position: int = 0,
    *,
    decompress: Decompress | None = None,
    max_decompressed_bytes: int = ...,
) -> BatchHeader: ...
def parse_control(buffer: AnyBuffer, position: int = 0) -> ControlMarker: ...
