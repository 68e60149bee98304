"""The permissions of share consumers and share coordinators, and Kafka's error code if a permission is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.authorizer import ResourceType as Kind
from kcore.protocol.messages import delete_share_group_state as delete
from kcore.protocol.messages import find_coordinator as find
from kcore.protocol.messages import initialize_share_group_state as initialize
from kcore.protocol.messages import offset_for_leader_epoch as ends
from kcore.protocol.messages import read_share_group_state as read
from kcore.protocol.messages import read_share_group_state_summary as summary
from kcore.protocol.messages import share_acknowledge as acknowledge
from kcore.protocol.messages import share_fetch as fetch
from kcore.protocol.messages import write_share_group_state as write
from tests.kit import create
from tests.security.guarded import ADMIN, Guarded, acl

TOPIC, GROUP, CLUSTER = 29, 30, 31  # ..._AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def engine() -> Iterator[Guarded]:
    one = Guarded(share_coordinator_state_topic_num_partitions="1")
    assert one.codes(create("t"), who=ADMIN) == set()
    one.send(find.FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{'A' * 22}:0"]), who=ADMIN)
    assert one.codes(state_requests(topic_id(one))[0], who=ADMIN) == set()
    yield one
    one.engine.close()


def topic_id(engine: Guarded) -> bytes:
    topic = engine.engine.topics.by_name("t")
    assert topic is not None
    return topic.topic_id


def state_requests(topic: bytes) -> list[Any]:
    """Returns one request of each API of the share coordinator."""
    rows: list[tuple[Any, str]] = [
        (initialize, "Initialize"),
        (read, "Read"),
        (write, "Write"),
        (summary, "Read"),
        (delete, "Delete"),
    ]
    requests = []
    for module, verb in rows:
        summarized = "Summary" if module is summary else ""
        request = getattr(module, f"{verb}ShareGroupState{summarized}Request")
        data = getattr(module, f"{verb}State{summarized}Data")
        requests.append(
            request(group_id="g", topics=[data(topic_id=topic, partitions=[module.PartitionData(partition=0)])])
        )
    return requests


@pytest.mark.parametrize("index", range(5), ids=["initialize", "read", "write", "summary", "delete"])
def test_the_state_of_share_partitions_is_for_brokers(engine: Guarded, index: int) -> None:
    """Without CLUSTER_ACTION, each partition gets error 31."""
    request = state_requests(topic_id(engine))[index]
    engine.forget()
    assert engine.codes(request) == {CLUSTER}
    engine.allow(acl(Op.CLUSTER_ACTION, Kind.CLUSTER))
    assert CLUSTER not in engine.codes(request)


def test_a_broker_may_read_the_ends_of_epochs(engine: Guarded) -> None:
    """A share coordinator sends OffsetForLeaderEpoch to compute lags. As in Kafka, it needs DESCRIBE on the topic, or
    CLUSTER_ACTION.
    """
    partition = ends.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = ends.OffsetForLeaderEpochRequest(topics=[ends.OffsetForLeaderTopic(topic="t", partitions=[partition])])
    engine.forget()
    assert engine.codes(request) == {TOPIC}
    for entry in (acl(Op.CLUSTER_ACTION, Kind.CLUSTER), acl(Op.DESCRIBE)):
        engine.forget()
        engine.allow(entry)
        assert engine.codes(request) == set()


def test_a_share_consumer_needs_its_group_and_each_topic(engine: Guarded) -> None:
    """Without READ on the group, the response has error 30. Without READ on a topic, the topic's partitions have error
    29.
    """
    topic = topic_id(engine)
    engine.codes(state_requests(topic)[0], who=ADMIN)

    def fetched(epoch: int) -> Any:
        partitions = [fetch.FetchPartition(partition_index=0)]
        return fetch.ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=epoch,
            max_records=1,
            topics=[fetch.FetchTopic(topic_id=topic, partitions=partitions)],
        )

    batch = acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    acknowledged = acknowledge.ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=1,
        topics=[acknowledge.AcknowledgeTopic(topic_id=topic, partitions=[partition])],
    )
    engine.forget()
    assert engine.codes(fetched(0)) == {GROUP}
    assert engine.codes(acknowledged) == {GROUP}
    engine.allow(acl(Op.READ, Kind.GROUP, "g"))
    assert engine.codes(fetched(0)) == {TOPIC}
    assert engine.codes(acknowledged) == {TOPIC}
    engine.allow(acl(Op.READ))
    assert engine.codes(fetched(0)) == set()
    assert engine.codes(acknowledged) == {121}, "the request is allowed, but no record was acquired"
