"""Internal topics of Kafka Streams applications in an engine: the limit for one topology, and log lines of failed
creations.
"""

from __future__ import annotations

import logging

import pytest

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.embed import SyncEngine
from kcore.engine import Engine
from kcore.group.streams.configure import Status
from kcore.log import MemoryLogEngine
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tests.group.streams.members import internal, subtopology, topology
from tests.kit import make_topic

ADVICE = "correct the cause; a later heartbeat of the application tries again"
LOGGER = "kcore.broker.metadata.application_topics"


def opened() -> SyncEngine:
    return SyncEngine(Engine(MemoryLogEngine(), Config(), ManualClock()))


def join(engine: SyncEngine, changelogs: list[str]) -> StreamsGroupHeartbeatResponse:
    """Joins with a topology that reads `in` and has these changelog topics."""
    return engine.send(
        StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            topology=topology(subtopology("0", ["in"], [internal(name) for name in changelogs])),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        )
    )


def missing_detail(response: StreamsGroupHeartbeatResponse) -> str:
    (detail,) = (
        status.status_detail
        for status in response.status or ()
        if status.status_code == Status.MISSING_INTERNAL_TOPICS.value
    )
    return str(detail)


def test_a_topology_creates_at_most_ten_thousand_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """Without the limit, one request could create thousands of changelogs, each with as many partitions as its source
    topic.
    """
    caplog.set_level(logging.WARNING, logger=LOGGER)
    engine = opened()
    make_topic(engine, "in", 2_000)
    first = join(engine, [f"log{number}" for number in range(6)])
    detail = "the internal topics log0, log1, log2 and 3 more are missing"
    assert missing_detail(first) == detail
    reason = "the topics need 12000 new partitions; the maximum at a time is 10000"
    assert [record.getMessage() for record in caplog.records] == [
        f"streams groups: cannot create 6 internal topics of an application, for example log0: {reason}; {ADVICE}"
    ]
    second = join(engine, [f"log{number}" for number in range(6)])
    shown = ", ".join(f"log{number} ({reason})" for number in range(3))
    assert missing_detail(second) == f"{detail}; their creation failed: {shown}"
    assert [engine.engine.topics.by_name(f"log{number}") for number in range(6)] == [None] * 6


def test_many_topics_that_cannot_be_created_take_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A topology may name 20,000 topics that cannot be created, and each heartbeat of each member requests their
    creation again.
    """
    caplog.set_level(logging.WARNING, logger=LOGGER)
    engine = opened()
    make_topic(engine, "in", 1)
    make_topic(engine, "a.b", 1)
    response = join(engine, ["a_b", "log"])
    assert missing_detail(response) == "the internal topics a_b, log are missing"
    engine.advance(1)
    assert [record.getMessage() for record in caplog.records] == [
        "streams groups: cannot create 1 internal topics of an application, for example a_b: a_b differs from an "
        f"existing topic only in dots and underscores; {ADVICE}"
    ]
    created = engine.engine.topics.by_name("log")
    assert created is not None
    assert created.partitions == 1
