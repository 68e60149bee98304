"""Errors of requests that the client has repeated: temporary errors are not raised, and other errors name the
repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore.errors import GroupIdNotFoundError, InvalidPartitionsError, KafkaError, TopicAlreadyExistsError
from kcore.node._async.calls import may_repeat
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.testing import Broker
from tests.recording_proxy import RecordingProxy


class Cut:
    """Closes the connection in place of the first response of an API. The broker has processed the request."""

    def __init__(self, api: ApiKey) -> None:
        self._api = api
        self.proxy: RecordingProxy | None = None
        self.done = False

    def __call__(self, api: ApiKey, response: Any) -> None:
        if api == self._api and not self.done:
            self.done = True
            assert self.proxy is not None
            self.proxy.cut()
            raise ConnectionAbortedError


CALLS: dict[str, tuple[ApiKey, Callable[[kcore.Node], object], type[KafkaError]]] = {
    "creation": (ApiKey.CREATE_TOPICS, lambda node: node.topics.create("u", 1), TopicAlreadyExistsError),
    "growth": (ApiKey.CREATE_PARTITIONS, lambda node: node.topics["t"].grow(2), InvalidPartitionsError),
    "deletion": (ApiKey.DELETE_GROUPS, lambda node: node.group("g").delete(), GroupIdNotFoundError),
}
"""A call whose repetition the server refuses, because it has processed the first attempt."""


@pytest.mark.parametrize("case", CALLS)
def test_an_error_after_a_lost_response_says_that_the_request_was_repeated(case: str) -> None:
    api, call, error = CALLS[case]
    cut = Cut(api)
    with Broker(topics={"t": 1}) as broker, RecordingProxy(broker.bootstrap, on_response=cut) as proxy:
        cut.proxy = proxy
        broker.node.group("g").commit({("t", 0): 0})
        with kcore.connect(proxy.bootstrap) as node:
            with pytest.raises(error) as caught:
                call(node)
            (note,) = caught.value.__notes__
            assert note.startswith("the client sent this request more than once, and an earlier attempt got no respo")
            with pytest.raises(error) as caught:
                call(node)
            assert not hasattr(caught.value, "__notes__"), "this request was sent once"
    assert cut.done


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS], ids=lambda api: api.name)
def test_a_storage_error_of_a_broker_is_temporary(api: ApiKey) -> None:
    """A node of a cluster refuses requests with this error at the end of its lease. Before, the call raised it."""
    refused = []

    def refuse(received: ApiKey, response: Any) -> None:
        if received != api or refused:
            return
        refused.append(received)
        match received:
            case ApiKey.PRODUCE:
                response.responses[0].partition_responses[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
            case ApiKey.LIST_OFFSETS:
                response.topics[0].partitions[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
            case _:
                response.error_code, response.responses = ErrorCode.KAFKA_STORAGE_ERROR, []

    with (
        Broker(topics={"t": 1}) as broker,
        RecordingProxy(broker.bootstrap, on_response=refuse) as proxy,
        kcore.connect(proxy.bootstrap) as node,
    ):
        topic = node.topics["t"]
        topic.append("v")
        assert {record.value for record in topic.read(0, 0)} == {b"v"}
        assert topic.end_offsets()[0] >= 1
    assert refused == [api]


def test_an_embedded_node_raises_storage_errors_at_once() -> None:
    error = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR)
    assert (may_repeat(error, 0, local=True), may_repeat(error, 0, local=False)) == (False, True)


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN], ids=lambda api: api.name)
def test_an_error_of_a_transaction_names_its_transactional_id(api: ApiKey) -> None:
    def refuse(received: ApiKey, response: Any) -> None:
        if received == api:
            response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR

    with (
        Broker(topics={"t": 1}) as broker,
        RecordingProxy(broker.bootstrap, on_response=refuse) as proxy,
        kcore.connect(proxy.bootstrap) as node,
        pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR: transactional id 'tx': The server failed"),
        node.transaction("tx") as transaction,
    ):
        transaction.append("t", "v")
