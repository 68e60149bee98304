"""Which partition of an internal topic a group, transactional id or share key lives in."""

from __future__ import annotations

from array import array
from functools import lru_cache


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit number that wraps around."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:  # characters beyond the basic plane are two units, as in Java
        units = array("H", text.encode("utf-16-le", "surrogatepass"))
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=65_536)  # the same groups come again with every heartbeat
def partition_for(key: str, partitions: int) -> int:
    """The partition of `key` among `partitions`: |hash| modulo; |-2147483648| counts as 0, as in `Utils.abs`."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
