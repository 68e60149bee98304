"""The topics as groups see them: what exists, hashes that tell whether anything changed, and when something was made.

A group keeps one hash of all topics that it reads. It is Kafka's (KIP-1101), so that a group whose log was written by a
Kafka broker does not see a change where there is none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from kcore.runtime.topics import TopicImage, TopicInfo

_MAGIC: Final = b"\x00"  # the version of what is hashed
_INT64_SIGN: Final = 1 << 63


def topic_hash(topic: TopicInfo, racks: Iterable[str] = ()) -> int:
    """The hash of one topic: id, name, partitions, and the racks of each.

    Args:
        topic: the topic.
        racks: the racks on which every partition of it stands.

    Returns:
        A signed 64-bit number.
    """
    most, least = struct.unpack(">qq", topic.topic_id)
    parts = [_MAGIC, struct.pack("<qq", most, least), _text(topic.name), struct.pack("<i", topic.partitions)]
    of_partition = b"".join(struct.pack("<i", len(rack)) + _text(rack) for rack in sorted(racks))
    parts += [struct.pack("<i", partition) + of_partition for partition in range(topic.partitions)]
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def group_hash(hashes: Iterable[int]) -> int:
    """The hash of all topics that a group reads, by the hashes of each in the order of their names; 0 for none."""
    data = b"".join(struct.pack("<q", value) for value in hashes)
    return _signed(xxh3_64_intdigest(data)) if data else 0


def _text(text: str) -> bytes:
    """Text as it is hashed: UTF-16 units and their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + struct.pack("<i", len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _INT64_SIGN else value


class TopicMetadata:
    """The topics of the cluster with what groups keep of them; one for all shards of a node.

    Args:
        topics: the topics.
        version: the version of the metadata as of now: a number that grows with every change, over restarts too.
        rack: where this node stands, None if it does not say.

    Attributes:
        topics: the topics.
        created_version: the version in which a topic was made last; what is older has not seen it.
    """

    __slots__ = ("_hashes", "_racks", "created_version", "topics", "version")

    def __init__(self, topics: TopicImage, version: Callable[[], int], rack: str | None = None) -> None:
        self.topics = topics
        self.version = version
        self.created_version = version()
        self._racks = (rack,) if rack else ()
        self._hashes: dict[str, int] = {}

    def created(self, name: str) -> None:
        """A topic was made, in the version that comes next."""
        self._hashes.pop(name, None)
        self.created_version = self.version() + 1

    def loaded(self) -> None:
        """All topics that there are were told of: what was looked at in the present version has seen them."""
        self.created_version = self.version()

    def changed(self, name: str) -> None:
        """A topic was grown or deleted."""
        self._hashes.pop(name, None)

    def hash_of(self, names: Iterable[str]) -> int:
        """The hash of those of the topics that exist."""
        known, by_name = self._hashes, self.topics.by_name
        existing: list[str] = []
        for name in names:
            if name not in known:
                topic = by_name(name)
                if topic is None:
                    continue
                known[name] = topic_hash(topic, self._racks)
            existing.append(name)
        existing.sort()
        return group_hash([known[name] for name in existing])
