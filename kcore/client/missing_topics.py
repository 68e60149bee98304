"""Rules for warnings about topics that do not exist, for example because their name is misspelled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponse

MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Errors of a topic that does not exist."""

NEW_TOPIC_S: Final = 2.0
"""The delay of the first warning, in seconds. During this time, a broker may not yet have the metadata of a new
topic.
"""

REPEAT_S: Final = 600.0
"""The shortest time in seconds between two warnings about the same topic."""

RETRY_S: Final = 10.0
"""The pause in seconds before the next lookup, if the previous lookup received no response."""


class MissingTopics:
    """The missing topics of a program, and the times of warnings: after two seconds, and again after ten minutes."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._warned_s: dict[str, float] = {}

    def found(self, topic: str) -> None:
        """Records that a topic exists."""
        if self._since_s:
            self._since_s.pop(topic, None)
            self._warned_s.pop(topic, None)

    def missing(self, topic: str, now_s: float) -> bool:
        """Records that a topic does not exist. Returns True if a warning is due."""
        if now_s - self._since_s.setdefault(topic, now_s) < NEW_TOPIC_S:
            return False
        if topic in self._warned_s and now_s - self._warned_s[topic] < REPEAT_S:
            return False
        self._warned_s[topic] = now_s
        return True


class SubscriptionCheck:
    """The lookup of a subscription's topics, which is repeated until each topic was found once.

    Args:
        topics: the names of the subscribed topics.
        now_s: the present time, in monotonic seconds.

    Attributes:
        topics: the topics that no lookup has found yet.
        due_s: the time of the next lookup; None: all topics were found, or a lookup is in progress.
    """

    def __init__(self, topics: Iterable[str], now_s: float) -> None:
        self.topics = sorted(set(topics))
        self.due_s: float | None = now_s if self.topics else None
        self._warnings = MissingTopics()

    def begin(self) -> None:
        """Records that a lookup of the topics has begun."""
        self.due_s = None

    def received(self, response: MetadataResponse, now_s: float) -> list[str]:
        """Handles the result of a lookup; returns the missing topics to warn the program about."""
        missing = {row.name for row in response.topics if row.error_code in MISSING}
        self.topics = [topic for topic in self.topics if topic in missing]
        warned = [topic for topic in self.topics if self._warnings.missing(topic, now_s)]
        if self.topics:
            self.due_s = now_s + (REPEAT_S if warned else NEW_TOPIC_S)
        return warned

    def failed(self, now_s: float) -> None:
        """Records that a lookup received no response."""
        self.due_s = now_s + RETRY_S
