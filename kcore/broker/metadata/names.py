"""Names of topics: legal names, internal topics, collisions."""

from __future__ import annotations

import re

from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

CLUSTER_METADATA = "__cluster_metadata"

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""Topics that clients may read but not write. Metadata responses mark these topics as internal."""

METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The fixed id of `__cluster_metadata` (KIP-516), reserved for that topic."""

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(name: str) -> str | None:
    """Describes the fault of a topic's name; None if the name is legal."""
    if not name:
        return "a topic's name cannot be empty"
    if name in {".", ".."}:
        return "a topic cannot be called '.' or '..'"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic's name may have at most {MAX_NAME_LENGTH} characters; this name has {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Returns the same key for names that collide. Names collide if they differ only in '.' and '_', because metric
    names do not distinguish these characters.
    """
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Tests if the topic is internal; clients must not write to it."""
    return name in INTERNAL_TOPICS
