"""Inputs of an assignor as value objects: topics with partitions and racks, subscriptions, members."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

Key = str | bytes

def utf16_key(text: str) -> bytes: ...
def uuid_key(topic_id: bytes) -> tuple[int, int]: ...
def sorted_keys(keys: Iterable[Key]) -> list[Key]: ...

class Topics(Mapping[Key, int]):
    ordered: tuple[Key, ...]
    has_racks: bool
    rack_names: tuple[str, ...]
    total_partitions: int
    def __init__(
        self,
        partitions: Mapping[str, int] | Mapping[bytes, int] | Mapping[Key, int],
        *,
        names: Mapping[str, bytes] | None = None,
        racks: Mapping[str, Sequence[Iterable[str]]] | Mapping[bytes, Sequence[Iterable[str]]] | None = None,
    ) -> None: ...
    def partition_count(self, topic: Key) -> int: ...
    def racks_of(self, topic: Key, partition: int) -> frozenset[str]: ...
    def key_of(self, topic: Key) -> Key | None: ...
    def __iter__(self) -> Iterator[Key]: ...
    def __len__(self) -> int: ...
    def __contains__(self, topic: object) -> bool: ...
    def __getitem__(self, topic: Key) -> int: ...

class Subscription:
    topics: tuple[Key, ...]
    listed: int
    unique: frozenset[Key]

class Member:
    member_id: str
    subscription: Subscription
    owned: Mapping[Key, Iterable[int]]
    generation_id: int
    rack_id: str | None
    instance_id: str | None
    user_data: object
    topics: tuple[Key, ...]
    def __init__(
        self,
        member_id: str,
        topics: Collection[str] | Collection[bytes] | Collection[Key] = (),
        *,
        owned: Mapping[str, Iterable[int]] | Mapping[bytes, Iterable[int]] | Mapping[Key, Iterable[int]] | None = None,
        generation_id: int = -1,
        rack_id: str | None = None,
        instance_id: str | None = None,
        user_data: object = None,
    ) -> None: ...
    def __hash__(self) -> int: ...
