"""The compiled look-up of topics shows the present image, also after the image is replaced."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kcore.broker.metadata.image import MetadataImage
from kcore.broker.metadata.topics import Topics
from kcore.runtime.topics import TopicInfo

ID = bytes(15) + b"\1"
OTHER_ID = bytes(15) + b"\2"


def image_of(*topics: TopicInfo) -> MetadataImage:
    image = MetadataImage()
    for topic in topics:
        image.names[topic.name] = image.ids[topic.topic_id] = topic
    return image


def test_a_topic_is_found_by_name_and_by_id_and_an_unknown_one_is_none() -> None:
    topic = TopicInfo("t", ID, 3)
    topics = Topics()
    topics.image = image_of(topic)
    assert topics.by_name("t") is topic
    assert topics.by_id(ID) is topic
    assert topics.by_name("other") is None
    assert topics.by_id(OTHER_ID) is None


def test_changes_of_an_image_and_another_image_are_seen_by_a_kept_method() -> None:
    """A fast path keeps the bound methods. An image changes in place, and a reload replaces it."""
    topics = Topics()
    by_name, by_id = topics.by_name, topics.by_id
    topic = TopicInfo("t", ID, 1)
    topics.image.names["t"] = topics.image.ids[ID] = topic
    assert by_name("t") is topic
    assert by_id(ID) is topic
    del topics.image.names["t"], topics.image.ids[ID]
    assert (by_name("t"), by_id(ID)) == (None, None)
    later = TopicInfo("t", OTHER_ID, 2)
    topics.replace(image_of(later))
    assert by_name("t") is later
    assert (by_id(ID), by_id(OTHER_ID)) == (None, later)


def test_a_key_that_cannot_be_hashed_is_an_error() -> None:
    topics = Topics()
    for find in (topics.by_name, topics.by_id):
        with pytest.raises(TypeError, match="unhashable"):
            find(cast(Any, []))


@pytest.mark.parametrize("image", [None, object(), TopicInfo("t", ID, 1)])
def test_an_object_without_the_dictionaries_of_an_image_is_refused(image: Any) -> None:
    topics = Topics()
    before = topics.image
    with pytest.raises((AttributeError, TypeError)):
        topics.image = image
    assert topics.image is before
