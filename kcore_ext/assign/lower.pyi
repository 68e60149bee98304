"""From value objects to arrays and back."""

from collections.abc import Iterable

def id_order(ids: Iterable[str]) -> list[int]: ...
