"""Choosing the protocol that all members share, and what consumers said in it."""

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
    """A request's protocols as a member keeps them: names shared, each once (the first counts)."""
    found: dict[str, bytes] = {}
    for protocol in requested:
        name = intern(protocol.name)
        if name not in found:
            found[name] = protocol.metadata
    return tuple(found.items())


def select_protocol(members: Mapping[str, Member], supported: Mapping[str, int], leader: Member) -> str:
    """The protocol of the next generation: each member votes for the first of its own that all support.

    Kafka leaves ties to the order of a hash map; here the leader's preference decides.

    Args:
        members: everybody, at least one.
        supported: how many members support each protocol.
        leader: one of them.
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
    return max(votes, key=votes.__getitem__)  # the first of the best, in the leader's order


def subscribed_topics(members: Iterable[Member], protocol_name: str) -> frozenset[str] | None:
    """The topics that consumers want, all members together; None if any of them cannot be read.

    Only what every version of the embedded protocol begins with is read: topics and user data.
    """
    read: set[bytes] = set()
    topics: set[str] = set()
    for member in members:
        metadata = member.metadata(protocol_name)
        if metadata in read:  # most members of a group say the same
            continue
        read.add(metadata)
        try:
            if len(metadata) < VERSION_BYTES or metadata[0] & 0x80:  # cut short, or a negative version
                return None
            topics.update(Subscription.decode(metadata, 0, VERSION_BYTES).topics)
        except DecodeError:
            return None
    return frozenset(topics)
