"""Dictionaries that count uses of keys, without entries for a count of 0."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")


def add_count(counts: dict[K, int], key: K, change: int) -> int:
    """Adds `change` to the count of a key and returns the new count. A count of 0 is removed."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count
