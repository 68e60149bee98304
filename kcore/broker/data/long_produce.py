"""Appends the batches of a Produce request in parts, between which other requests are served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.broker.data.append import CHECKED_BYTES_A_MICROSECOND
from kcore.broker.data.decompression import BYTES_A_MICROSECOND, DecompressionBudget
from kcore.errors import CloseConnectionError
from kcore.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.broker.apis.produce import ProduceApi
    from kcore.broker.data.transactional_produce import ProduceItem
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices

PART_COST_US = 5_000
"""Total cost of the batches that one part of a request appends together, in microseconds."""
ITEM_COST_US = 25
"""The cost of a batch in addition to the cost of its bytes, in microseconds."""


class LongProduce:
    """The appends of one request.

    Each part has its own response, which waits for the commit of the part's batches. If a commit fails, only the
    partitions of this part have an error. Nearly every request is one part.

    Args:
        api: appends the batches.
        context: the client and the API version of the request.
        request: the Produce request.
        items: the request's partitions.
    """

    __slots__ = ("_api", "_budget", "_context", "_failed", "_items", "_parked", "_request")

    def __init__(
        self, api: ProduceApi, context: RequestContext, request: ProduceRequest, items: list[ProduceItem]
    ) -> None:
        self._api = api
        self._context = context
        self._request = request
        self._items = items
        self._budget = DecompressionBudget(sum(len(item.data.records or b"") for item in items))
        self._failed = False
        self._parked = False

    def start(self, slices: Slices) -> Any:
        """Appends the batches; returns the response, a `Pending` for it, or None with acks=0.

        Raises:
            CloseConnectionError: an error in the first slice of a request with acks=0.
        """
        result = slices.requests.run(self._api, self._context, self._request, self._parts(), self._join, eager=True)
        self._parked = True
        return result

    def _parts(self) -> Work:
        """Appends the batches. Returns the response, or the `Pending`, of each part."""
        acks, items, budget = self._request.acks, self._items, self._budget
        parts: list[Any] = []
        responses: list[PartitionProduceResponse] = []
        first, cost = 0, 0
        for number, item in enumerate(items, 1):
            before_bytes = budget.spent_bytes
            response = self._api.append_item(self._context, item, acks, budget)
            if not isinstance(response, PartitionProduceResponse):
                steps = response
                while True:
                    try:
                        step_cost = next(steps)
                    except StopIteration as end:
                        response = end.value
                        break
                    # The commit of the batches before this one may fail meanwhile: their response must wait for it.
                    if responses:
                        parts.append(self._part(first, number - 1, responses))
                        first, responses = number - 1, []
                    yield cost + step_cost
                    cost = 0
                before_bytes = budget.spent_bytes  # the steps have yielded their cost
            responses.append(response)
            self._failed = self._failed or bool(response.error_code)
            cost += ITEM_COST_US + len(item.data.records or b"") // CHECKED_BYTES_A_MICROSECOND
            if budget.spent_bytes != before_bytes:
                cost += (budget.spent_bytes - before_bytes) // BYTES_A_MICROSECOND
            if cost >= PART_COST_US or number == len(items):
                parts.append(self._part(first, number, responses))
                yield cost
                first, cost, responses = number, 0, []
        if not items:
            parts.append(self._part(0, 0, []))
        return parts

    def _part(self, first: int, end: int, responses: list[PartitionProduceResponse]) -> Any:
        """Makes the response of the items from `first` to `end`.

        The response waits until the batches of these items are durable.
        """
        if not self._request.acks:
            return None
        request = self._request
        if first or end < len(self._items):
            request = self._part_of_request(first, end)
        topics, at = [], 0
        for topic in request.topic_data:
            count = len(topic.partition_data)
            if count:
                topics.append(_topic_response(topic, responses[at : at + count]))
            at += count
        failed = any(response.error_code for response in responses)
        partitions = [item.partition for item in self._items[first:end]]
        return self._api.respond(self._context, request, ProduceResponse(responses=topics), failed, partitions)

    def _part_of_request(self, first: int, end: int) -> ProduceRequest:
        """Makes the request about the items from `first` to `end`."""
        topics = []
        at = 0
        for topic in self._request.topic_data:
            data = topic.partition_data[max(first - at, 0) : max(end - at, 0)]
            at += len(topic.partition_data)
            if data:
                topics.append(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data))
        return ProduceRequest(
            transactional_id=self._request.transactional_id,
            acks=self._request.acks,
            timeout_ms=self._request.timeout_ms,
            topic_data=topics,
        )

    def _join(self, parts: list[Any]) -> Any:
        if not self._request.acks:
            self._api.throttle(self._context, self._request, ProduceResponse())
            try:
                return self._api.reply(self._request, ProduceResponse(), self._failed)
            except CloseConnectionError:
                if not self._parked:
                    raise
                return None  # a request with acks=0 has no response, even after a late error
        return parts[0] if len(parts) == 1 else gather(self._api, self._context, self._request, parts, self._merge)

    def _merge(self, parts: list[ProduceResponse]) -> ProduceResponse:
        """Joins the responses of all parts to the response of the request."""
        results = [result for part in parts for topic in part.responses for result in topic.partition_responses]
        responses, at = [], 0
        for topic in self._request.topic_data:
            count = len(topic.partition_data)
            if count:
                responses.append(_topic_response(topic, results[at : at + count]))
            at += count
        endpoints = {endpoint.node_id: endpoint for part in parts for endpoint in part.node_endpoints}
        throttle_ms = max(part.throttle_time_ms for part in parts)
        return ProduceResponse(
            responses=responses, throttle_time_ms=throttle_ms, node_endpoints=list(endpoints.values())
        )


def _topic_response(topic: TopicProduceData, results: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
