"""Finds one of the largest of many items without visiting all of them."""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

MAX_COMPARED: Final = 64
"""Maximum number of items of similar size that `largest` compares."""


class SizeClasses(Generic[Item]):
    """Items with a size in bytes, in classes by powers of two."""

    __slots__ = ("_classes", "_sizes")

    def __init__(self) -> None:
        self._sizes: dict[Item, int] = {}
        self._classes: list[dict[Item, None]] = [{} for _ in range(65)]

    def __len__(self) -> int:
        return len(self._sizes)

    def size_of(self, item: Item) -> int:
        """Returns the size of an item; 0 if there is no such item."""
        return self._sizes.get(item, 0)

    def set(self, item: Item, size_bytes: int) -> None:
        """Sets the size of an item; 0 removes it."""
        previous = self._classes[self._sizes.get(item, 0).bit_length()]
        members = self._classes[size_bytes.bit_length()]
        if not size_bytes:
            previous.pop(item, None)
            self._sizes.pop(item, None)
            return
        members[item] = None  # an item that is not new keeps its position
        if previous is not members:
            previous.pop(item, None)
        self._sizes[item] = size_bytes

    def largest(self) -> Item:
        """Returns the largest item. If many items are about as large, returns one that is more than half as large.

        Raises:
            LookupError: there is no item.
        """
        for members in reversed(self._classes):
            if members:
                return max(islice(members, MAX_COMPARED), key=self.size_of)
        raise LookupError("no item")
