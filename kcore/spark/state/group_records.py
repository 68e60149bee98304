"""Classifies the record types of consumer, share and streams groups by the names of their key classes.

A key class is named after the kind of its group and the part of its state: `ShareGroupMemberMetadataKey` is the part
"MemberMetadata" of a share group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kcore.protocol.records import CONSUMER_OFFSETS, key_classes

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

PREFIXES: Final = {CONSUMER: "ConsumerGroup", SHARE: "ShareGroup", STREAMS: "StreamsGroup"}
"""Kind of group -> prefix of the names of its key classes."""

OFFSET_COMMIT_TYPES: Final = (b"\x00\x00", b"\x00\x01")
"""The first bytes of a committed offset's key: one of two record types, whose keys have equal layouts."""

Part = tuple[str, str]
"""Kind of group, and the name of a part of its state: "Metadata", "MemberMetadata", "Topology", ..."""


def parts_of(kinds: Iterable[str] = PREFIXES) -> dict[type, Part]:
    """Returns the key classes of `__consumer_offsets` that belong to groups of some kinds.

    Args:
        kinds: kinds from `PREFIXES`.

    Returns:
        Key class -> kind of group and part of its state.
    """
    return {
        cls: (kind, cls.__name__.removeprefix(PREFIXES[kind]).removesuffix("Key"))
        for cls in key_classes(CONSUMER_OFFSETS).values()
        for kind in kinds
        if cls.__name__.startswith(PREFIXES[kind])
    }
