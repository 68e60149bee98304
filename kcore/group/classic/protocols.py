"""Choice of the protocol that all members share, and the subscriptions in its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import TYPE_CHECKING

from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import Subscription

if TYPE_CHECKING:
    from kcore.group.classic.member import Member, Protocols
    from kcore.protocol.messages.join_group import JoinGroupRequestProtocol

VERSION_BYTES = 2  # the int16 in front of a subscription


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Converts a request's protocols to a member's form: names interned, each once (the first counts)."""
    protocols: dict[str, bytes] = {}
    for protocol in requested:
        name = intern(protocol.name)
        if name not in protocols:
            protocols[name] = protocol.metadata
    return tuple(protocols.items())


def select_protocol(members: Mapping[str, Member], supported: Mapping[str, int], leader: Member) -> str:
    """Returns the protocol of the next generation: each member votes for its first one that all members support.

    Kafka breaks ties by the order of a hash map; kcore uses the leader's preference.

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
    return max(votes, key=votes.__getitem__)  # the first one with the most votes, in the leader's order


def subscribed_topics(members: Iterable[Member], protocol_name: str) -> frozenset[str] | None:
    """Returns the topics to which any member subscribes; None if a subscription cannot be decoded.

    Only the prefix that all versions of the embedded protocol share is decoded: topics and user data.
    """
    read: set[bytes] = set()
    topics: set[str] = set()
    for member in members:
        metadata = member.metadata(protocol_name)
        if metadata in read:  # most members of a group send identical metadata
            continue
        read.add(metadata)
        try:
            if len(metadata) < VERSION_BYTES or metadata[0] & 0x80:  # truncated, or a negative version
                return None
            topics.update(Subscription.decode(metadata, 0, VERSION_BYTES).topics)
        except DecodeError:
            return None
    return frozenset(topics)
