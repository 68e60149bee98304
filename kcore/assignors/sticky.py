"""The assignor `sticky` of classic groups (KIP-54, KIP-341, KAFKA-9987), and the user data of its members."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import sticky


@dataclass(frozen=True, slots=True)
class StickyAssignorUserData:
    """The user data of a member of the sticky assignor.

    Attributes:
        owned: topic -> partitions of the last assignment.
        generation_id: the generation of that assignment; -1 in version 0, which has none.
    """

    owned: Mapping[str, Iterable[int]] = field(default_factory=dict)
    generation_id: int = -1

    def encode(self, version: int = 1) -> bytes:
        """Encodes version 1, or version 0 if there is no generation."""
        out = [struct.pack(">i", len(self.owned))]
        for topic, partitions in self.owned.items():
            name, numbers = topic.encode(), tuple(partitions)
            out.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
        if version >= 1:
            out.append(struct.pack(">i", self.generation_id))
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes | None) -> "StickyAssignorUserData":
        """Decodes version 1, else version 0. As in Kafka, other bytes mean that the member owns no partitions."""
        if data is None:
            return cls()
        try:
            owned, position = _read_owned(data)
        except (struct.error, ValueError):
            return cls()
        if len(data) - position < struct.calcsize(">i"):
            return cls(owned)
        (generation_id,) = struct.unpack_from(">i", data, position)
        return cls(owned, generation_id)


def _read_owned(data: bytes) -> tuple[dict[str, tuple[int, ...]], int]:
    owned: dict[str, tuple[int, ...]] = {}
    (topics,) = struct.unpack_from(">i", data)
    position = 4
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, position)
        if size < 0:
            raise ValueError("the sticky assignor's user data has a topic without a name")
        (name,) = struct.unpack_from(f">{size}s", data, position + 2)
        (count,) = struct.unpack_from(">i", data, position + 2 + size)
        position += 6 + size
        if count < 0 or len(data) - position < 4 * count:
            raise ValueError("the sticky assignor's user data ends within the owned partitions")
        numbers = struct.unpack_from(f">{count}i", data, position)
        position += 4 * count
        topic = name.decode("utf-8", "replace")
        owned[topic] = owned.get(topic, ()) + numbers
    return owned, position


class StickyAssignor:
    """The assignor that balances the load and moves as few partitions as possible.

    It reads owned partitions only from the members' user data (`Member.user_data`: bytes, or a StickyAssignorUserData).
    If two members claim a partition, the claim of the larger generation wins; two claims of one generation are both
    void.

    With equal subscriptions, no two members differ by more than one partition and, without racks, no equally balanced
    assignment moves fewer partitions. With unequal subscriptions, no single move improves the balance. If Kafka 4.3
    would loop forever, this assignor returns the assignment of `kcore.balanced`. Kafka remembers the largest generation
    over the life of an assignor. This assignor considers only the current members, so that a result depends only on its
    arguments.
    """

    name = "sticky"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. `previous`, if given, replaces the user data."""
        return sticky.assign(members, topics, False, previous)
