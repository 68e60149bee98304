"""Bounds of responses: the length of a response, and the memory of all responses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.group.apis.consumer_group_heartbeat import MAX_SUBSCRIBED_TOPICS
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.runtime import RequestContext
from kcore.server.memory import LEAST_BYTES
from tests.kit import batch, commit, create, fetch, heartbeat, produce, stable_alone, wait_until
from tests.server.live import LiveServer, Raw

Serve = Callable[..., LiveServer]

LIMIT = 65_536
BLOB = 40_000


def settle_groups(live: LiveServer, count: int, metadata: bytes) -> list[str]:
    """Creates groups of one member each, with `metadata` as the member's metadata. Returns their ids."""
    names = [f"g{number}" for number in range(count)]
    with live.connect() as connection:
        for name in names:
            stable_alone(connection, name, metadata=metadata)
    return names


def test_a_response_beyond_the_limit_is_an_error(serve: Serve, log_lines: list[str]) -> None:
    """The connection stays open, and the groups can be described one by one."""
    live = serve({"kcore.max.response.bytes": str(LIMIT)})
    names = settle_groups(live, 2, b"m" * BLOB)
    with live.connect() as connection:
        refused = connection.send(DescribeGroupsRequest(groups=names), 6)
        assert refused == DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=name, error_code=ErrorCode.POLICY_VIOLATION) for name in names]
        )
        for name in names:
            (group,) = connection.send(DescribeGroupsRequest(groups=[name]), 6).groups
            assert (group.error_code, len(group.members), len(group.members[0].member_metadata)) == (0, 1, BLOB)
    assert any("DescribeGroups" in line and "kcore.max.response.bytes" in line for line in log_lines)


def test_a_response_beyond_the_limit_after_a_commit_is_an_error(serve: Serve) -> None:
    """The response to a read waits for the commit of a write to the same shard, and is encoded after this commit."""
    live = serve({"kcore.max.response.bytes": str(LIMIT), "offsets.topic.num.partitions": "1"})
    names = settle_groups(live, 2, b"m" * BLOB)
    with Raw(live.port) as peer:
        write, read = commit("other", {("t", 0): 1}), DescribeGroupsRequest(groups=names)
        peer.send(peer.request(write, 8) + peer.request(read, 5))
        peer.receive(write, 8)
        _, response = peer.receive(read, 5)
    assert [group.error_code for group in response.groups] == [ErrorCode.POLICY_VIOLATION] * 2


def test_a_too_long_response_without_an_error_field_closes_the_connection(serve: Serve, log_lines: list[str]) -> None:
    """An empty Metadata response would claim that there are no topics."""
    live = serve({"kcore.max.response.bytes": str(LIMIT)})
    with live.connect() as connection:
        connection.send(create("t", partitions=3_000))
    with Raw(live.port) as peer:
        peer.send(peer.request(MetadataRequest(topics=None), 9))
        assert peer.closed
    assert any("kcore.max.response.bytes" in line and "Metadata" in line for line in log_lines)


def test_a_fetch_may_exceed_the_limit_by_one_batch(serve: Serve) -> None:
    live = serve({"kcore.max.response.bytes": str(LIMIT)})
    with live.connect() as connection:
        connection.send(create("t"))
        for _ in range(2):
            connection.send(produce("t", batch([b"v" * 500_000])), 9)
        (response,) = connection.send(fetch("t", max_bytes=1 << 30), 12).responses[0].partitions
    assert (response.error_code, 500_000 < len(response.records or b"") < 501_000) == (0, True)


def test_a_setting_can_allow_longer_responses(serve: Serve) -> None:
    live = serve({"kcore.max.response.bytes": str(1 << 20)})
    names = settle_groups(live, 2, b"m" * BLOB)
    with live.connect() as connection:
        groups = connection.send(DescribeGroupsRequest(groups=names), 6).groups
    assert [group.error_code for group in groups] == [0, 0]


def test_unread_long_responses_leave_no_room_for_others(serve: Serve, log_lines: list[str]) -> None:
    """Small responses are still sent, and clients that read still get long responses. The memory is released when the
    other clients disconnect.
    """
    live = serve({"kcore.max.response.memory.bytes": str(4 * LEAST_BYTES)})
    names = settle_groups(live, 2, b"m" * 900_000)
    memory = live.server.responses
    assert memory is not None
    peers = []
    for number in range(12):
        peer = Raw(live.port)
        peers.append(peer)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        peer.try_send(b"".join(peer.request(DescribeGroupsRequest(groups=names), 6) for _ in range(4)))
        with live.connect() as connection:
            assert connection.send(heartbeat("absent", "m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert live.call(lambda: memory.held_bytes) <= 4 * LEAST_BYTES, number
    assert any("kcore.max.response.memory.bytes" in line for line in log_lines)
    for peer in peers:
        peer.socket.close()
    wait_until(lambda: live.call(lambda: memory.held_bytes) == 0, "the end of the peers")
    with live.connect() as connection:
        groups = connection.send(DescribeGroupsRequest(groups=names), 6).groups
    assert [len(group.members[0].member_metadata) for group in groups] == [900_000, 900_000]


def test_a_response_takes_its_memory_when_it_is_encoded(serve: Serve) -> None:
    """A response counts towards the memory limit as soon as it is encoded. Many responses may be encoded in a round
    before the first of them is sent.
    """
    live = serve({"kcore.max.response.memory.bytes": str(10 * LEAST_BYTES)})
    memory, room = live.server.responses, live.engine.fetch_memory_budget
    assert memory is not None

    def reserve_and_measure() -> list[Any]:
        seen: list[Any] = []
        for _ in range(3):
            try:
                memory.reserve(4 * LEAST_BYTES)
            except Exception as error:
                seen.append(type(error).__name__)
            else:
                seen.append(room.left_bytes)
        memory.end_round()
        return [*seen, room.left_bytes]

    assert live.call(reserve_and_measure) == [6 * LEAST_BYTES, 2 * LEAST_BYTES, "NoRoomError", 10 * LEAST_BYTES]


def test_the_memory_limit_of_fetches_is_at_most_that_of_a_response(serve: Serve) -> None:
    live = serve({"kcore.max.response.bytes": "70000", "kcore.max.response.memory.bytes": "-1"})
    assert isinstance(live.engine.fetch_memory_budget, FetchMemoryBudget)
    assert live.engine.fetch_memory_budget.most_bytes == 70_000


def test_settings_of_a_resource_named_repeatedly_are_looked_up_once(live: LiveServer) -> None:
    """As in Kafka, each occurrence of the resource gets a result."""
    with live.connect() as connection:
        connection.send(create("t"))
        named = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
        some = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        results = connection.send(DescribeConfigsRequest(resources=[named, some] * 2_000)).results
        api = live.server.engine.apis[int(ApiKey.DESCRIBE_CONFIGS)]
        request = DescribeConfigsRequest(resources=[named, some] * 2_000)
        found = live.call(lambda: api.handle(RequestContext(4, "c"), request)).results
    assert list(results) == [results[0], results[1]] * 2_000
    assert (len(results[0].configs) > 20, len(results[1].configs)) == (True, 1)
    assert len({id(result) for result in found}) == 2


@pytest.mark.parametrize("version", [4, 18])
def test_a_fetch_returns_an_error_in_its_version(live: LiveServer, version: int) -> None:
    """A Fetch response is too large, and an error replaces it: in the top-level field, or in each partition in versions
    without such a field.
    """
    route = live.server.dispatch.route(int(ApiKey.FETCH))
    assert route is not None
    request = fetch("t")
    context = RequestContext(version, "c")
    response = live.call(lambda: live.server.dispatch.too_large(route.api, context, request, version))
    codes = [data.error_code for topic in response.responses for data in topic.partitions]
    assert (response.error_code, codes) == ((44, []) if version > 6 else (0, [44]))


def test_the_number_of_topics_in_a_subscription_is_limited(live: LiveServer) -> None:
    """A subscription with too many topics gets INVALID_REQUEST, because it would block the event loop for seconds."""
    names = [f"t{number}" for number in range(MAX_SUBSCRIBED_TOPICS + 1)]
    with live.connect() as connection:
        codes = [
            connection.send(
                ConsumerGroupHeartbeatRequest(
                    group_id="c",
                    member_id="AAAAAAAAAAAAAAAAAAAAAQ",
                    member_epoch=0,
                    rebalance_timeout_ms=10_000,
                    topic_partitions=[],
                    subscribed_topic_names=names[:count],
                )
            ).error_code
            for count in (MAX_SUBSCRIBED_TOPICS + 1, MAX_SUBSCRIBED_TOPICS)
        ]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
