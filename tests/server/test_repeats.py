"""Requests that clients repeat byte for byte over sockets: the server repeats the response, and sends a new response
once the state has changed.
"""

from __future__ import annotations

from typing import Any

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kcore.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kit import commit, create
from tests.server.live import LiveServer, Raw

FETCHES = 5


def fetch_of(group: str, topics: list[OffsetFetchRequestTopics] | None) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


SOME = fetch_of("g", [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])])
EVERYTHING = fetch_of("g", None)


def offsets(raw: Raw, request: OffsetFetchRequest) -> list[dict[int, int]]:
    """Sends the same OffsetFetch repeatedly, first in one write and then separately. Returns the offsets of each
    response.
    """
    raw.send(b"".join(raw.request(request, 9) for _ in range(FETCHES)))
    first = raw.correlation_id - FETCHES + 1
    responses: list[tuple[int, Any]] = [raw.receive(request, 9) for _ in range(FETCHES)]
    for _ in range(FETCHES):
        raw.send(raw.request(request, 9))
        responses.append(raw.receive(request, 9))
    assert [correlation_id for correlation_id, _ in responses] == list(range(first, first + 2 * FETCHES))
    return [
        {p.partition_index: p.committed_offset for topic in response.groups[0].topics for p in topic.partitions}
        for _, response in responses
    ]


def test_offset_fetches_return_the_last_commit(live: LiveServer) -> None:
    with live.connect() as other, live.raw() as one, live.raw() as two:
        other.send(create("t", partitions=2))
        for number in range(10):
            other.send(commit("g", {("t", 0): number}), 8)
            for raw in (one, two):
                assert offsets(raw, SOME) == [{0: number, 1: -1}] * (2 * FETCHES)
                assert offsets(raw, EVERYTHING) == [{0: number}] * (2 * FETCHES)
        other.send(DeleteGroupsRequest(groups_names=["g"]))
        for raw in (one, two):
            assert offsets(raw, SOME) == [{0: -1, 1: -1}] * (2 * FETCHES)
            assert offsets(raw, EVERYTHING) == [{}] * (2 * FETCHES)
        api = live.engine.apis[SOME.API_KEY]
        assert live.call(lambda: api.fast_path.reused) > 100


def test_a_fetch_after_a_commit_on_one_connection_sees_it(live: LiveServer) -> None:
    with live.connect() as other, live.raw() as raw:
        other.send(create("t", partitions=2))
        requests: list[tuple[Any, int]] = []
        for number in range(200):
            requests += [(commit("g", {("t", 1): number}), 8), (SOME, 9), (SOME, 9), (SOME, 9)]
        raw.send(b"".join(raw.request(*request) for request in requests))
        for index, request in enumerate(requests):
            _, response = raw.receive(*request)
            if request[0] is SOME:
                assert response.groups[0].topics[0].partitions[1].committed_offset == index // 4


def test_versions_are_encoded_again_after_features_change(live: LiveServer) -> None:
    """A feature level changes. Connections that have sent the same ApiVersions request before then get the new
    features, like a new connection.
    """
    request = ApiVersionsRequest(client_software_name="me", client_software_version="1")
    off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)

    def features_of(raw: Raw, version: int = 4) -> tuple[int, set[str]]:
        raw.send(raw.request(request, version))
        correlation_id, response = raw.receive(request, version)
        assert (correlation_id, response.error_code) == (raw.correlation_id, 0)
        return response.finalized_features_epoch, {feature.name for feature in response.finalized_features}

    with live.connect() as control, live.raw() as one, live.raw() as two:
        epoch, features = features_of(one)
        assert "share.version" in features
        assert [features_of(raw) for raw in (one, one, two, one)] == [(epoch, features)] * 4
        assert features_of(two, 3) == (epoch, features)
        assert control.send(UpdateFeaturesRequest(feature_updates=[off]), 1).error_code == 0
        changed = features_of(one)
        assert changed[0] > epoch
        assert changed[1] == features - {"share.version"}
        with live.raw() as three:
            assert [features_of(raw) for raw in (one, two, three)] == [changed] * 3
        assert features_of(two, 3) == changed


def test_repeated_heartbeats_get_a_new_response_after_a_change(live: LiveServer) -> None:
    """A member that repeats the same bytes gets a new epoch, or the error of a disabled protocol."""

    def beat(member_epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=member_epoch, **fields)

    def send_beat(raw: Raw, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        raw.send(raw.request(request, 1))
        correlation_id, response = raw.receive(request, 1)
        assert correlation_id == raw.correlation_id
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def turned(level: int) -> UpdateFeaturesRequest:
        update = FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=1 if level else 2)
        return UpdateFeaturesRequest(feature_updates=[update])

    with live.connect() as other, live.raw() as raw:
        other.send(create("t", partitions=2))
        joining = beat(0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=[])
        joined = send_beat(raw, joining)
        assert (joined.error_code, joined.assignment is not None) == (0, True)
        epoch = joined.member_epoch
        assert send_beat(raw, beat(epoch)).error_code == 0
        api = live.engine.apis[joining.API_KEY]
        before = live.call(lambda: api.fast_path.served)
        at_rest = [send_beat(raw, beat(epoch)) for _ in range(5)]
        assert live.call(lambda: api.fast_path.served) == before + 5
        assert [(response.error_code, response.member_epoch, response.assignment) for response in at_rest] == [
            (0, epoch, None)
        ] * 5
        assert other.send(turned(0), 1).error_code == 0
        assert [send_beat(raw, beat(epoch)).error_code for _ in range(2)] == [ErrorCode.UNSUPPORTED_VERSION] * 2
        assert other.send(turned(1), 1).error_code == 0
        assert [send_beat(raw, beat(epoch)) for _ in range(2)] == at_rest[:2]
        leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=-1)
        assert send_beat(raw, leaving).error_code == 0
        assert send_beat(raw, beat(epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
