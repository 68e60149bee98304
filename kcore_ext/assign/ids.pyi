"""Member ids in Kafka's order (String.compareTo)."""

from collections.abc import Iterable

def id_order(ids: Iterable[str]) -> list[int]: ...
