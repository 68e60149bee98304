"""Seeded mutations of valid requests: other clients are still served, and nothing leaks."""

from __future__ import annotations

import logging
import os
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.protocol.api_keys import ApiKey, response_class
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests import kit
from tests.kit import batch, commit, create, fetch, heartbeat, join, leave, produce, sync
from tests.seeds import SEED
from tests.server.live import Lines, LiveServer

COUNT = int(os.environ.get("KCORE_FUZZ_COUNT", "4000"))


def corpus() -> list[tuple[Any, int]]:
    """Returns valid requests of many kinds, each in its oldest and its newest version."""
    requests: list[Any] = [
        ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"),
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        create("fuzzed", partitions=2),
        DeleteTopicsRequest(topic_names=["fuzzed"], timeout_ms=1),
        produce("t", batch([b"one", b"two"])),
        fetch("t"),
        commit("fuzz", {("t", 0): 5}, metadata="text"),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="fuzz", topics=None)]),
        FindCoordinatorRequest(coordinator_keys=["fuzz"]),
        join("fuzz", metadata=b"\0\1\0\0\0\0"),
        sync("fuzz", "m", 1, {"m": b"all"}),
        heartbeat("fuzz", "m", 1),
        leave("fuzz", "m"),
        DescribeGroupsRequest(groups=["fuzz"]),
        ListGroupsRequest(),
        DeleteGroupsRequest(groups_names=["fuzz"]),
        kit.producer_id(),
    ]
    return [
        (request, version)
        for request in requests
        for version in dict.fromkeys((type(request).MAX_VERSION, type(request).MIN_VERSION))
        if encodable(request, version)
    ]


def encodable(request: Any, version: int) -> bool:
    try:
        request.encode(version)
    except Exception:  # a field that this version does not have
        return False
    return True


INTERESTING = [0, 1, 0x7F, 0x80, 0xFE, 0xFF]


def mutated(body: bytearray, rng: random.Random) -> bytearray:
    """Applies one to four changes: bits, bytes, integers, or sections that are removed, repeated or replaced by random
    bytes.
    """
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body)) if body else 0
        kind = rng.randrange(8)
        if kind == 0 and body:
            body[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and body:
            body[at] = rng.choice(INTERESTING)
        elif kind == 2:
            del body[at : at + rng.randint(1, 8)]
        elif kind == 3:
            body[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            body[at:at] = body[at : at + rng.randint(1, 16)]
        elif kind == 5:
            body[at : at + 4] = struct.pack(">i", rng.choice([-2, -1, 0, 1, 2**31 - 1, -(2**31), len(body)]))
        elif kind == 6:
            body[at : at + 2] = struct.pack(">h", rng.choice([-2, -1, 0, 1, 2**15 - 1, -(2**15)]))
        elif kind == 7:
            del body[at:]
    return body


def still_sound(live: LiveServer, name: str) -> None:
    """Checks that another client's group, offsets and records are unchanged."""
    with live.connect() as connection:
        assert connection.send(heartbeat("bystander", *MEMBER[name])).error_code == 0
        assert kit.committed(connection, "bystander") == {("t2", 0): 42}
        assert kit.read_all(connection, "t2") == [(0, b"kept")]


MEMBER: dict[str, tuple[str, int]] = {}


@pytest.fixture(autouse=True)
def _no_bug_is_met() -> Iterator[None]:
    """Checks that the test's requests cause no internal error, by looking for log lines at level ERROR."""
    logger, errors = logging.getLogger("kcore"), Lines()
    level = logger.level
    logger.setLevel(logging.ERROR)
    logger.addHandler(errors)
    yield
    logger.removeHandler(errors)
    logger.setLevel(level)
    assert errors.lines == []


@pytest.mark.seeded
@pytest.mark.timeout(120)
def test_mutated_requests_do_not_affect_other_clients(live: LiveServer, request: pytest.FixtureRequest) -> None:
    print(f"KCORE_SEED={SEED}")
    rng = random.Random(SEED)
    seeds = corpus()
    assert len(seeds) > 25
    name = request.node.name
    with live.connect() as bystander:
        bystander.send(create("t", "t2"))
        bystander.send(produce("t2", batch([b"kept"])), 9)
        MEMBER[name] = kit.stable_alone(bystander, "bystander", session_ms=1_800_000)
        bystander.send(commit("bystander", {("t2", 0): 42}, *MEMBER[name]), 9)
    raw, responses_seen, closed = live.raw(), 0, 0
    for n in range(COUNT):
        message, version = rng.choice(seeds)
        frame = bytearray(raw.request(message, version)[4:])
        keep_header = rng.random() < 0.8
        head = 8 if keep_header else 0
        body = bytes(frame[:head]) + bytes(mutated(frame[head:], rng))
        if b"bystander" in body or b"t2" in body:
            continue
        # The response to the following heartbeat, or the end of the connection, comes at once.
        probe = raw.request(heartbeat("nobody", "m", 1), 4)
        expected = raw.correlation_id
        raw.try_send(struct.pack(">i", len(body)) + body + probe)
        if waits_for_others(body):
            raw.reset()
            raw = live.raw()
            continue
        while (response := raw.frame()) is not None:
            if struct.unpack(">i", response[:4])[0] == expected and is_heartbeat(response):
                responses_seen += 1
                break
        else:
            closed += 1
            raw.socket.close()
            raw = live.raw()
        if n % 500 == 499:
            still_sound(live, name)
    raw.socket.close()
    still_sound(live, name)
    print(f"{responses_seen} responses, {closed} connections closed")
    assert responses_seen > COUNT // 20
    assert closed > COUNT // 20
    live.wait_for_connections(0)
    assert live.call(lambda: live.server.quota.by_host) == {}


def waits_for_others(body: bytes) -> bool:
    """Returns True for a join, a SyncGroup or a long poll, which may be parked."""
    return len(body) < 2 or struct.unpack(">h", body[:2])[0] in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH)


def is_heartbeat(frame: bytes) -> bool:
    """Returns True if the frame is the response to the heartbeat that the test sends to check the server."""
    return len(frame) == 12 and response_class(ApiKey.HEARTBEAT).decode(frame, 4, 5).error_code != 0


@pytest.mark.seeded
def test_random_bytes_do_not_affect_other_clients(live: LiveServer) -> None:
    print(f"KCORE_SEED={SEED}")
    rng = random.Random(SEED)
    for _ in range(200):
        with live.raw() as raw:
            raw.try_send(rng.randbytes(rng.randint(1, 400)))
    with live.connect() as connection:
        assert connection.send(heartbeat("g", "m", 1)).error_code == 25
    live.wait_for_connections(0)
