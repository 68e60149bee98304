from collections.abc import Callable
from typing import Any

def decode_with_views(
    decode: Callable[[memoryview, int, int], Any], frame: memoryview, version: int, position: int
) -> Any: ...
