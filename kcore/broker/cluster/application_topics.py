"""Creation of the internal topics of Kafka Streams applications from any node of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.broker.metadata.application_topics import ApplicationTopics, creatable
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from kcore.broker.cluster.forwarding import Forwarder
    from kcore.broker.metadata.application_topics import RequestedTopic
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.clock import Now
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

VERSION: Final = 7
"""The version of the CreateTopics requests that one node sends to another."""
CREATED: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class SharedApplicationTopics(ApplicationTopics):
    """The creator of the internal topics of Kafka Streams applications on any node of a cluster.

    The controller creates them itself. As in Kafka, other nodes send it a CreateTopics request with the principal of
    the client.

    Args:
        shard: the metadata shard.
        creation: checks and plans new topics.
        now: the clock, which the driver reads once for each round of requests.
        forwarder: sends requests to the controller.
    """

    __slots__ = ("_forwarder",)

    def __init__(self, shard: Shard[MetadataMachine], creation: TopicCreation, now: Now, forwarder: Forwarder) -> None:
        super().__init__(shard, creation, now)
        self._forwarder = forwarder

    def _start(self, context: RequestContext, topics: list[RequestedTopic], remember_ms: int) -> None:
        if self._shard.machine.leads():
            super()._start(context, topics, remember_ms)
            return
        failed = {topic.name: "the controller cannot be reached" for topic in topics}

        def arrived(response: CreateTopicsResponse | None) -> None:
            try:
                for result in () if response is None else response.topics:
                    if result.error_code in CREATED:
                        failed.pop(result.name, None)
                    else:
                        failed[result.name] = result.error_message or f"error code {result.error_code}"
            finally:
                self._finish(topics, failed, remember_ms)

        request = CreateTopicsRequest(topics=[creatable(topic) for topic in topics], timeout_ms=remember_ms)
        try:
            self._forwarder.send(context._replace(api_version=VERSION), request, arrived)
        except BaseException:
            self._finish(topics, {}, remember_ms)  # the next heartbeat starts again
            raise
