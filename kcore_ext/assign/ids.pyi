"""Sorting of member ids in Kafka's order, which is that of Java's String.compareTo."""

from collections.abc import Iterable

def id_order(ids: Iterable[str]) -> list[int]: ...
