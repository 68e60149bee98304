from collections.abc import Callable
from typing import Any

def survey(
    buffer: Any, *, decompress: Callable[[int, Any, int], bytes] | None = None, max_decompressed_bytes: int = ...
) -> tuple[int, int, int, bool]:
    """Checks a client's batch in one walk: (earliest_ms, latest_ms, keyless, consecutive)."""

def find_by_timestamp(
    batch: Any, timestamp_ms: int, min_offset: int, decompress: Callable[[int, Any, int], bytes]
) -> tuple[int, int] | None:
    """Finds the first record of at least a timestamp and an offset in a batch with create times, as (offset, ms)."""
