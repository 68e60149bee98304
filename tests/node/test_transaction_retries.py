"""The producer of transactions repeats a request after every retriable error, as Kafka's producer does."""

from __future__ import annotations

from typing import Any

import pytest

import kcore
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.testing import Broker
from tests.recording_proxy import RecordingProxy

CODES = [
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


class FirstResponse:
    """Replaces the error code in the first response of an API. The broker has processed the request."""

    def __init__(self, api: ApiKey, code: int) -> None:
        self._api = api
        self._code = code
        self.replaced = False

    def __call__(self, api: ApiKey, response: Any) -> None:
        if api != self._api or self.replaced:
            return
        self.replaced = True
        match api:
            case ApiKey.PRODUCE:
                response.responses[0].partition_responses[0].error_code = self._code
            case ApiKey.TXN_OFFSET_COMMIT:
                response.topics[0].partitions[0].error_code = self._code
            case _:
                response.error_code = self._code


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "api", [ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN], ids=lambda api: api.name
)
def test_a_transaction_continues_after_a_retriable_error(api: ApiKey, code: ErrorCode) -> None:
    """Before, the transaction failed, for example while a partition had too few in-sync replicas."""
    fault = FirstResponse(api, code)
    with (
        Broker(topics={"t": 1}) as broker,
        RecordingProxy(broker.bootstrap, on_response=fault) as proxy,
        kcore.connect(proxy.bootstrap) as node,
    ):
        for number in range(2):
            with node.transaction("tx") as transaction:
                transaction.append("t", f"v{number}")
                transaction.commit_offsets("g", {("t", 0): number + 1})
        records = broker.node.topics["t"].read(0, 0, isolation="read_committed")
        assert [record.value for record in records] == [b"v0", b"v1"]
        assert {key: offset.offset for key, offset in broker.node.group("g").committed().items()} == {("t", 0): 2}
    assert fault.replaced


def test_a_transaction_ends_at_an_error_that_is_not_retriable() -> None:
    fault = FirstResponse(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
    with (
        Broker(topics={"t": 1}) as broker,
        RecordingProxy(broker.bootstrap, on_response=fault) as proxy,
        kcore.connect(proxy.bootstrap) as node,
    ):
        with pytest.raises(KafkaError, match="INVALID_RECORD"), node.transaction("tx") as transaction:
            transaction.append("t", "v")
        assert broker.node.topics["t"].read(0, 0, isolation="read_committed") == []
