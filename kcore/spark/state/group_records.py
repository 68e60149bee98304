"""What the record types of consumer, share and streams groups have in common: their names say whose and what they are.

A key class is called by the kind of its group and by the part of its state that it holds: `ShareGroupMemberMetadataKey`
is the part "MemberMetadata" of a share group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kcore.protocol.records import CONSUMER_OFFSETS, key_classes

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

PREFIXES: Final = {CONSUMER: "ConsumerGroup", SHARE: "ShareGroup", STREAMS: "StreamsGroup"}
"""Kind of group -> how the names of its key classes begin."""

OFFSET_COMMIT_TYPES: Final = (b"\x00\x00", b"\x00\x01")
"""How keys of committed offsets begin: two record types that are laid out alike."""

Part = tuple[str, str]
"""Kind of group, and the part of its state: "Metadata", "MemberMetadata", "Topology", ..."""


def parts_of(kinds: Iterable[str] = PREFIXES) -> dict[type, Part]:
    """The key classes of `__consumer_offsets` that belong to groups of some kinds.

    Args:
        kinds: of `PREFIXES`.

    Returns:
        Key class -> what its records hold.
    """
    return {
        cls: (kind, cls.__name__.removeprefix(PREFIXES[kind]).removesuffix("Key"))
        for cls in key_classes(CONSUMER_OFFSETS).values()
        for kind in kinds
        if cls.__name__.startswith(PREFIXES[kind])
    }
