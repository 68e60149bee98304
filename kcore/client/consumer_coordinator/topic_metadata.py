"""The topics that a member knows."""

from __future__ import annotations

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponse


class TopicMetadata:
    """The topics of the last metadata responses.

    Attributes:
        counts: topic -> number of partitions.
        ids: topic id -> name.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.ids: dict[bytes, str] = {}

    def update(self, response: MetadataResponse, complete: bool) -> None:
        """Stores a response. If `complete` is True, the response lists all topics; other topics are removed.

        A response may list a topic without its partitions if they have no leaders. For example, a node that has lost
        its cluster sends such a response. The stored number of partitions then stays, because a topic never loses
        partitions.
        """
        previous = self.counts
        if complete:
            self.counts = {}
        for topic in response.topics:
            if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE and topic.name and not topic.partitions:
                self.counts[topic.name] = previous.get(topic.name, 0)
            elif topic.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE) and topic.name:
                self.counts[topic.name] = len(topic.partitions)
                self.ids[topic.topic_id] = topic.name
            elif topic.name:
                self.counts.pop(topic.name, None)
