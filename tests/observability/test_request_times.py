"""Durations of requests by API, which are measured only while a scraper reads metrics."""

from __future__ import annotations

from kcore.metrics import Histogram
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore_ext.server.api_times import BOUNDS_S, ApiTimes
from tests.kit import COMMIT_VERSION, commit, make_topic
from tests.observability.watched import Watched, watched

SECOND = 1_000_000_000


def counts(node: Watched) -> dict[str, float]:
    """Scrapes the number of measured requests of each API."""
    found = node.samples()
    return {labels[0]: n for (name, labels), n in found.items() if name == "kcore_request_time_seconds_count"}


def test_a_time_counts_in_the_first_bucket_whose_bound_is_not_below_it() -> None:
    times = ApiTimes()
    for bound_s in BOUNDS_S:
        times.observe(round(bound_s * SECOND))
        times.observe(round(bound_s * SECOND) + 1)
    times.observe(0)
    assert times.buckets() == [2, *[2] * (len(BOUNDS_S) - 1), 1]
    assert times.count == 2 * len(BOUNDS_S) + 1
    histogram = Histogram.of(BOUNDS_S, times.buckets(), times.total_ns / SECOND)
    assert histogram.count == times.count
    assert list(histogram.buckets())[-1] == ("+Inf", times.count)
    assert len(list(histogram.buckets())) == len(BOUNDS_S) + 1


def test_requests_are_measured_from_the_first_scrape_on() -> None:
    with watched() as node, node.live.connect() as client:
        client.send(ListGroupsRequest())
        assert counts(node) == {}, "requests were measured before the first scrape"
        make_topic(client, "t")
        for offset in range(3):
            client.send(commit("g", {("t", 0): offset}), COMMIT_VERSION)
        for _ in range(2):
            client.send(ListGroupsRequest())
        assert counts(node) == {"CreateTopics": 1, "OffsetCommit": 3, "ListGroups": 2}
        found = node.samples()
        for api in ("CreateTopics", "OffsetCommit", "ListGroups"):
            total = found["kcore_request_time_seconds_sum", (api,)]
            assert 0 < found["kcore_request_processing_seconds_total", (api,)] <= total, api


def test_pipelined_requests_are_measured_one_by_one() -> None:
    """Requests that arrive in one read of the socket are measured at the same time, but each of them is counted."""
    with watched() as node, node.live.raw() as peer:
        assert counts(node) == {}
        peer.send(b"".join(peer.request(ListGroupsRequest(), 4) for _ in range(5)))
        for _ in range(5):
            assert peer.frame() is not None
        assert counts(node) == {"ListGroups": 5}


def test_a_parked_request_is_measured_until_its_response() -> None:
    """A join waits for the initial rebalance delay. Its total time includes the wait, and its processing time does
    not.
    """
    with watched({"group.initial.rebalance.delay.ms": "300"}) as node, node.live.connect() as client:
        assert counts(node) == {}
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        join.member_id = client.send(join, 5).member_id
        assert counts(node) == {"JoinGroup": 1}
        first = node.samples()
        assert client.send(join, 5).error_code == 0
        found = node.samples()
        assert found["kcore_request_time_seconds_count", ("JoinGroup",)] == 2
        name = "kcore_request_time_seconds_sum"
        waited_s = found[name, ("JoinGroup",)] - first[name, ("JoinGroup",)]
        assert waited_s >= 0.25
        name = "kcore_request_processing_seconds_total"
        assert found[name, ("JoinGroup",)] - first[name, ("JoinGroup",)] < waited_s - 0.2


def test_measurement_ends_some_time_after_the_last_scrape() -> None:
    with watched() as node, node.live.connect() as client:
        observer = node.http.observer
        client.send(ListGroupsRequest())
        assert counts(node) == {}
        client.send(ListGroupsRequest())
        assert counts(node) == {"ListGroups": 1}
        (entry,) = [served for served in node.live.server.dispatch if served.requests and served.key == 16]
        assert entry.times is entry.all_times

        def scrapes_ended_long_ago() -> None:
            observer._record_until_s = 0.0
            observer._probe.cancel()
            observer._measure_delay()

        node.live.call(scrapes_ended_long_ago)
        assert entry.times is None
        client.send(ListGroupsRequest())
        client.send(ListGroupsRequest())
        assert counts(node) == {"ListGroups": 1}, "the other two requests were measured"
        client.send(ListGroupsRequest())
        assert counts(node) == {"ListGroups": 2}
