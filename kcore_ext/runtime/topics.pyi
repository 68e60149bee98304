from typing import Any

from kcore.runtime.topics import TopicInfo

class TopicsCore:
    """The compiled part of `kcore.broker.metadata.topics.Topics`: finds topics by name and by id.

    Attributes:
        image: the current `MetadataImage`. An image never replaces its dictionaries `names` and `ids`, so the object
            keeps references to them.
    """

    image: Any

    def by_name(self, name: str) -> TopicInfo | None:
        """Returns the topic with this name, or None."""

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Returns the topic with this id, or None."""
