from collections.abc import Callable
from typing import Any

def survey(
    buffer: Any, *, decompress: Callable[[int, Any, int], bytes] | None = None, max_decompressed_bytes: int = ...
) -> tuple[int, int, int, bool]:
    """Checks a client's batch in one walk: (earliest_ms, latest_ms, keyless, consecutive)."""
