"""Permissions of streams groups, and the creation of their internal topics by a real controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.authorizer import ResourceType as Kind
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kcore.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.group.streams.members import internal, subtopology, topology
from tests.kit import create
from tests.security.guarded import ADMIN, Guarded, acl

MISSING_INTERNAL_TOPICS = 3
READS_GROUP = acl(Op.READ, Kind.GROUP, "g")
SEES_TOPICS = (acl(Op.DESCRIBE, name="t"), acl(Op.DESCRIBE, name="log"))
STATEFUL = topology(subtopology("0", ["t"], [internal("log")]))


@pytest.fixture
def engine() -> Iterator[Guarded]:
    made = Guarded(group_streams_initial_rebalance_delay_ms="0", group_streams_assignment_interval_ms="0")
    assert made.codes(create("t", partitions=2), who=ADMIN) == set()
    yield made
    made.engine.close()


def join(engine: Guarded, requested: Topology = STATEFUL, group_id: str = "g") -> StreamsGroupHeartbeatResponse:
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        rebalance_timeout_ms=60_000,
        topology=requested,
        process_id="p",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    response: StreamsGroupHeartbeatResponse = engine.send(request)
    return response


def beat(engine: Guarded, epoch: int) -> StreamsGroupHeartbeatResponse:
    response: StreamsGroupHeartbeatResponse = engine.send(
        StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    )
    return response


def detail(response: StreamsGroupHeartbeatResponse) -> str:
    """Checks that the only status in the response is MISSING_INTERNAL_TOPICS. Returns its detail text."""
    (status,) = response.status or ()
    assert status.status_code == MISSING_INTERNAL_TOPICS
    return status.status_detail


def settings_of(engine: Guarded, name: str) -> dict[str, str]:
    topics: Any = engine.engine.control.topics
    return dict(topics.settings_of(2, name))


def test_a_heartbeat_needs_the_group_and_all_topics(engine: Guarded) -> None:
    """The heartbeat needs READ on the group, and DESCRIBE on each topic of the topology, including internal topics."""
    assert join(engine).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    engine.allow(READS_GROUP)
    assert join(engine).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    engine.allow(SEES_TOPICS[0])
    assert join(engine).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    engine.allow(SEES_TOPICS[1])
    assert join(engine).error_code == ErrorCode.NONE


def test_internal_topics_are_created_with_the_clients_permission(engine: Guarded) -> None:
    """If the client may not CREATE an internal topic, the status text names the topic. If it may, the topic is created
    with the requested settings, and the tasks are assigned.
    """
    engine.allow(READS_GROUP, *SEES_TOPICS)
    changelog = TopicInfo(name="log", topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
    refused = join(engine, topology(subtopology("0", ["t"], [changelog])))
    assert detail(refused).endswith("; the client may not CREATE the topics log")
    engine.engine.turn()
    assert engine.engine.topics.by_name("log") is None
    engine.allow(acl(Op.CREATE, name="log"))
    assert "CREATE" not in detail(beat(engine, 2))
    engine.engine.slices.finish()
    engine.engine.commit()
    created = engine.engine.topics.by_name("log")
    assert created is not None
    assert (created.partitions, settings_of(engine, "log")) == (2, {"cleanup.policy": "compact"})
    response = beat(engine, 2)
    assert (response.status, response.member_epoch) == ((), 3)
    assert response.active_tasks == (TaskIds(subtopology_id="0", partitions=(0, 1)),)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (internal("log", replication_factor=9), "9 replicas were requested, and the cluster has 1 nodes"),
        (TopicInfo(name="log", topic_configs=[KeyValue(key="no.such", value="1")]), "no.such"),
    ],
    ids=["replication", "setting"],
)
def test_a_failed_creation_is_reported_for_a_while(engine: Guarded, topic: TopicInfo, reason: str) -> None:
    """The next heartbeats return the reason, and each of them retries the creation."""
    engine.allow(READS_GROUP, *SEES_TOPICS, acl(Op.CREATE, Kind.CLUSTER))
    assert "creation failed" not in detail(join(engine, topology(subtopology("0", ["t"], [topic]))))
    engine.engine.slices.finish()
    text = detail(beat(engine, 2))
    assert "; their creation failed: log (" in text
    assert reason in text
    engine.engine.slices.finish()
    assert engine.engine.topics.by_name("log") is None
    engine.clock.advance(10_000)
    assert "creation failed" not in detail(beat(engine, 2))


def test_a_topic_with_too_many_partitions_is_not_created(engine: Guarded) -> None:
    """The client selects the partition count of a repartition topic, so the limit of CreateTopics applies."""
    engine.allow(READS_GROUP, *SEES_TOPICS, acl(Op.CREATE, Kind.CLUSTER))
    part = subtopology("0", ["t"], repartitions=[internal("log", 2_000_000_000)])
    assert detail(join(engine, topology(part))) == "the internal topics log are missing"
    engine.engine.slices.finish()
    assert "the topics need 2000000000 new partitions; the maximum at a time is 10000" in detail(beat(engine, 2))


def test_internal_topics_of_the_cluster_are_refused(engine: Guarded) -> None:
    engine.allow(READS_GROUP)
    for name in ("__consumer_offsets", "__cluster_metadata", "a b"):
        response = join(engine, topology(subtopology("0", [name])))
        assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_describe_needs_the_group_and_all_topics(engine: Guarded) -> None:
    """Without DESCRIBE on a topic, the response has neither members nor a topology."""
    engine.allow(READS_GROUP, *SEES_TOPICS, acl(Op.CREATE, Kind.CLUSTER))
    join(engine)
    engine.forget()
    request = StreamsGroupDescribeRequest(group_ids=["g"])
    assert engine.codes(request) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    engine.allow(acl(Op.DESCRIBE, Kind.GROUP, "g"), SEES_TOPICS[0])
    (group,) = engine.send(request).groups
    assert (group.error_code, group.members, group.topology) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, (), None)
    engine.allow(SEES_TOPICS[1])
    (group,) = engine.send(request).groups
    assert (group.error_code, group.group_state, len(group.members)) == (ErrorCode.NONE, "NotReady", 1)


def test_a_switched_off_protocol_is_unsupported() -> None:
    """If `group.coordinator.rebalance.protocols` does not contain streams, requests of streams groups get
    UNSUPPORTED_VERSION, as in Kafka with `streams.version` 0.
    """
    engine = Guarded(group_coordinator_rebalance_protocols="classic,consumer")
    assert join(engine).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert engine.codes(StreamsGroupDescribeRequest(group_ids=["g"])) == {ErrorCode.UNSUPPORTED_VERSION}
    engine.engine.close()
