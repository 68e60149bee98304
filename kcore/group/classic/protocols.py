"""Choice of a protocol that all members support, and decoding of the subscriptions in members' metadata."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kcore_ext.util.java_hash import java_hash
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.group.classic.member import Member, Protocols
    from kcore.protocol.messages.join_group import JoinGroupRequestProtocol

VERSION_BYTES: Final = 2  # the int16 in front of a subscription
SIZE_BYTES: Final = 4
NULL_SIZE: Final = b"\xff\xff\xff\xff"

NAMES_PER_SLICE: Final = 20_000
"""Number of topic names in subscriptions that one slice reads."""
FEWEST_BUCKETS: Final = 16
"""Number of buckets of an empty `HashMap` of Java. It doubles when three quarters of the number are full."""
MAX_SUBSCRIBED_TOPICS: Final = 200_000
"""Maximum number of subscribed topics that a group stores. A group with more topics counts as subscribed to all topics.

The limit is necessary because the names take ten times the memory of the members' metadata.
"""


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Converts a request's protocols to `Protocols`: pairs of an interned name and its metadata.

    If the request repeats a name, the first metadata counts.
    """
    protocols: dict[str, bytes] = {}
    for protocol in requested:
        name = shared_text(protocol.name)
        if name not in protocols:
            protocols[name] = protocol.metadata
    return tuple(protocols.items())


def select_protocol(members: Mapping[str, Member], supported: Mapping[str, int], leader: Member) -> str:
    """Returns the protocol of the next generation: each member votes for its first protocol that all members support.

    If the votes are equal, the order of Java's hash map of the protocols with votes decides, as in Kafka. It puts
    `range` before `cooperative-sticky`. In the same bucket of the map, the leader's preference decides.

    Args:
        members: all members, at least one.
        supported: number of members that support each protocol.
        leader: one of the members.
    """
    candidates = [name for name, _ in leader.protocols if supported[name] == len(members)]
    assert candidates, "members without a common protocol are not admitted"
    if len(candidates) == 1:
        return candidates[0]
    votes = dict.fromkeys(candidates, 0)
    for member in members.values():
        for name, _ in member.protocols:
            if name in votes:
                votes[name] += 1
                break
    voted = [name for name in candidates if votes[name]]
    if len(voted) == 1:
        return voted[0]
    buckets = FEWEST_BUCKETS
    while len(voted) > buckets * 3 // 4:
        buckets *= 2
    return max(sorted(voted, key=lambda name: _bucket(name, buckets)), key=votes.__getitem__)


def _bucket(name: str, buckets: int) -> int:
    """Returns the bucket of a key in Java's `HashMap`.

    Args:
        name: the key.
        buckets: the number of buckets, a power of two.
    """
    code = java_hash(name) & 0xFFFFFFFF
    return (code ^ code >> 16) & buckets - 1


def subscribed_topics(members: Iterable[Member], protocol_name: str) -> Generator[None, None, frozenset[str] | None]:
    """Returns the topics to which any member subscribes; yields after every `NAMES_PER_SLICE` names.

    Args:
        members: the members; they may change after the first step.
        protocol_name: the protocol of the generation.

    Returns:
        The topics; None if a subscription cannot be decoded, or if there are more than `MAX_SUBSCRIBED_TOPICS`.
    """
    topics: set[str] = set()
    count = 0
    for metadata in {member.metadata(protocol_name): None for member in members}:  # most members send the same
        try:
            for name in topic_names(metadata):
                topics.add(name)
                count += 1
                if count == NAMES_PER_SLICE:
                    if len(topics) > MAX_SUBSCRIBED_TOPICS:
                        return None
                    count = 0
                    yield
        except ValueError:
            return None
    return None if len(topics) > MAX_SUBSCRIBED_TOPICS else frozenset(topics)


def topic_names(metadata: bytes) -> Iterator[str]:
    """Yields the topics of an encoded consumer subscription one by one, because there may be 300,000 topics.

    Decodes only the fields that every version of the subscription has: the topics and the user data.

    Raises:
        ValueError: the bytes are not a subscription.
    """
    length = len(metadata)
    if length < VERSION_BYTES or metadata[0] & 0x80:  # truncated, or a negative version
        raise ValueError("the subscription has no version")
    at = VERSION_BYTES + SIZE_BYTES
    for _ in range(_size(metadata, VERSION_BYTES)):
        start = at + 2
        if start > length or metadata[at] & 0x80:
            raise ValueError("the name of a topic is truncated or null")
        at = start + (metadata[at] << 8 | metadata[at + 1])
        if at > length:
            raise ValueError("the name of a topic is truncated")
        yield str(metadata[start:at], "utf-8")
    if metadata[at : at + SIZE_BYTES] != NULL_SIZE and at + SIZE_BYTES + _size(metadata, at) > length:
        raise ValueError("the user data is truncated")


def _size(metadata: bytes, at: int) -> int:
    """Returns the int32 at index `at`, which is the size of the following field.

    Raises:
        ValueError: the number is truncated or negative.
    """
    if len(metadata) < at + SIZE_BYTES or metadata[at] & 0x80:
        raise ValueError("a size is truncated or negative")
    return int.from_bytes(metadata[at : at + SIZE_BYTES], "big")
