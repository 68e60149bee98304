"""InitProducerId and the blocks of ids: no id is allocated twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.broker.apis.init_producer_id import InitProducerIdApi
from kcore.broker.metadata.producer_ids import BLOCK_SIZE
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kcore.protocol.records.metadata import ProducerIdsRecord
from tests.broker.context import NODE_ID, BrokerContext
from tests.broker.metadata.test_create_topics import Only
from tests.seeds import SEED


def request(transactional_id: str | None = None, **more: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000, **more)


def taken(node: BrokerContext) -> int:
    response = node.call(request())
    assert (response.error_code, response.producer_epoch) == (0, 0)
    return int(response.producer_id)


def test_ids_count_up_and_a_block_is_one_record() -> None:
    """One record allocates a thousand ids. A response waits only for the commit of the record that contains its id."""
    node = BrokerContext()
    node.records()
    assert [taken(node) for _ in range(3)] == [0, 1, 2]
    assert node.records() == [ProducerIdsRecord(broker_id=NODE_ID, broker_epoch=-1, next_producer_id=BLOCK_SIZE)]
    for _ in range(BLOCK_SIZE - 3):
        taken(node)
    assert node.records() == []
    assert taken(node) == BLOCK_SIZE
    assert [record.next_producer_id for record in node.records()] == [2 * BLOCK_SIZE]


def test_a_restart_discards_the_rest_of_the_block() -> None:
    node = BrokerContext()
    taken(node)
    node.restart()
    assert taken(node) == BLOCK_SIZE


def test_an_id_whose_commit_failed_is_not_in_a_response() -> None:
    """The response has a retriable error; the id may be allocated again."""
    node = BrokerContext()
    node.auto_commit = False
    response = node.send(request())
    assert not response.done
    node.fail_next_commit()
    node.commit()
    assert response.response == InitProducerIdResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1, producer_epoch=-1
    )
    node.auto_commit = True
    assert taken(node) == 0


@pytest.mark.seeded
def test_no_id_is_allocated_twice_across_crashes_and_failed_commits() -> None:
    """After random requests, failures and crashes, the ids of all responses differ."""
    seed = SEED
    print(f"seed {seed}")
    chance = random.Random(seed)
    node = BrokerContext()
    node.auto_commit = False
    given: set[int] = set()
    waiting: list[Any] = []
    for _ in range(3000):
        what = chance.random()
        if what < 0.9:
            result = node.send(request())
            waiting.append(result)
        elif what < 0.95:
            if chance.random() < 0.3:
                node.fail_next_commit()
            node.commit()
        elif what < 0.97:
            node.commit()
            node.restart()
            waiting.clear()
        else:
            node.restart()
            waiting.clear()
        for result in list(waiting):
            response = result if isinstance(result, InitProducerIdResponse) else result.response
            if response is None:
                continue
            waiting.remove(result)
            if response.error_code == 0:
                assert response.producer_id not in given
                given.add(response.producer_id)
    assert given


@pytest.mark.parametrize(
    ("invalid", "code"),
    [
        (request(producer_id=5), 42),
        (request(producer_epoch=5), 42),
        (request(producer_id=5, producer_epoch=5), 0),
        (request(""), 42),
        (request("t"), 16),
    ],
)
def test_invalid_requests_are_refused(invalid: InitProducerIdRequest, code: int) -> None:
    """Covers an id without an epoch, an empty transactional id, and a transactional id without a coordinator."""
    response = BrokerContext().call(invalid)
    assert (response.error_code, response.producer_epoch) == (code, 0 if code == 0 else -1)


def test_transactional_ids_go_to_their_coordinator() -> None:
    """InitProducerId with a transactional id returns the response of the transaction coordinator."""

    class Coordinator:
        def handle(self, context: Any, requested: InitProducerIdRequest) -> InitProducerIdResponse:
            return InitProducerIdResponse(producer_id=77, producer_epoch=len(requested.transactional_id or ""))

    node = BrokerContext()
    ids = InitProducerIdApi(node.shard, node.control.producer_ids, node.topics, Coordinator())
    node.apis.made[ApiKey.INIT_PRODUCER_ID] = ids
    assert node.call(request("abc")) == InitProducerIdResponse(producer_id=77, producer_epoch=3)


def test_idempotent_producers_need_idempotent_write_or_write_on_a_topic() -> None:
    """Idempotent producers need IDEMPOTENT_WRITE, or WRITE on any topic; transactional ids have their own rules."""
    node = BrokerContext()
    node.create("t")

    def code(*rules: Any, transactional_id: str | None = None) -> int:
        node.apis[22].authorizer = Only(*rules)
        return int(node.call(request(transactional_id)).error_code)

    assert code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert code((Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster")) == 0
    assert code((Operation.WRITE, ResourceType.TOPIC, "t")) == 0
    assert code((Operation.WRITE, ResourceType.TOPIC, "other")) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert code(transactional_id="x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"), transactional_id="x") == 16


def test_the_transaction_coordinator_uses_the_same_blocks() -> None:
    """The transaction coordinator takes its producer ids from the blocks that InitProducerId uses. The coordinator gets
    None while the metadata log is being loaded.
    """
    node = BrokerContext()
    assert [node.control.producer_ids.next_id() for _ in range(2)] == [0, 1]
    node.finish()
    assert taken(node) == 2
    node.shard.failed(AssertionError("the log refused"))  # type: ignore[arg-type]
    assert node.control.producer_ids.next_id() is None
    node.slices.finish()
    assert node.control.producer_ids.next_id() == BLOCK_SIZE
