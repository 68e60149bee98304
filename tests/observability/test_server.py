"""/metrics, /healthz and /readyz of a running server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.log import MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.runtime import ShardState
from kcore.server import http
from kcore.server.cluster_metrics import CLUSTER_METRICS
from kcore.server.http import MAX_CONNECTIONS, MAX_REQUEST_BYTES, HttpServer
from kcore.server.observe import METRICS
from tests.kit import COMMIT_VERSION, commit, heartbeat, make_topic, stable_alone, wait_until
from tests.observability.watched import Watched, watched


@pytest.fixture(params=["asyncio", "uvloop"])
def node(request: pytest.FixtureRequest) -> Iterator[Watched]:
    with watched(loop=request.param) as one:
        yield one


def test_a_scrape_has_exactly_the_metrics_of_the_table(node: Watched) -> None:
    """A scrape has exactly the metrics in `METRICS`, with their types, texts and labels. Prometheus' own parser reads
    it.
    """
    node.get("/metrics")  # from now on requests are measured
    with node.live.connect() as client:
        make_topic(client, "t")
        client.send(heartbeat("g", "nobody", 1))  # so that the error counter has a sample
    _, text = node.get("/metrics")
    helps = [line.split(" ", 3)[2:] for line in text.splitlines() if line.startswith("# HELP ")]
    assert helps == [[metric.name, metric.doc] for metric in METRICS]
    types = [tuple(line.split(" ")[2:]) for line in text.splitlines() if line.startswith("# TYPE ")]
    assert types == [(metric.name, metric.kind.value) for metric in METRICS]
    names = {name for name, _ in node.samples()}
    for metric in METRICS:
        if metric in CLUSTER_METRICS:
            continue  # this node is no part of a cluster
        if metric.name == "kcore_authentications_total":
            continue  # no client authenticates here
        suffixes = ("_bucket", "_sum", "_count") if metric.kind.value == "histogram" else ("",)
        assert {metric.name + suffix for suffix in suffixes} <= names, metric.name


def test_groups_and_offsets_are_counted(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 3)
        stable_alone(client, "members")
        client.send(commit("simple", {("t", 0): 5, ("t", 1): 6, ("t", 2): 7}), COMMIT_VERSION)
        client.send(commit("simple", {("t", 0): 8}), COMMIT_VERSION)
        gone = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=1)])]
        assert client.send(OffsetDeleteRequest(group_id="simple", topics=gone)).error_code == 0
        found = node.samples()
    assert {series: value for series, value in found.items() if series[0].endswith("groups") and value} == {
        ("kcore_groups", ("classic",)): 2,
        ("kcore_classic_groups", ("Stable",)): 1,
        ("kcore_classic_groups", ("Empty",)): 1,
    }
    numbers = {name: value for (name, labels), value in found.items() if not labels}
    assert numbers["kcore_group_completed_rebalances_total"] == 1
    assert numbers["kcore_offsets"] == 2
    assert numbers["kcore_offset_commits_total"] == 4
    assert numbers["kcore_offset_deletions_total"] == 1
    assert numbers["kcore_offset_expirations_total"] == 0
    assert found["kcore_partitions", ("__consumer_offsets", "active")] == 3


def test_requests_and_their_errors_are_counted_by_api(node: Watched) -> None:
    """The metrics count the top-level error code of a response, and the error code of each partition with an error."""
    with node.live.connect() as client:
        for _ in range(3):
            assert client.send(heartbeat("nobody", "nobody", 1)).error_code == 25
        make_topic(client, "t")
        client.send(commit("g", {("t", 0): 1, ("t", 1): 1, ("u", 0): 1}), COMMIT_VERSION)
        client.send(ListGroupsRequest())
        found = node.samples()
    requests = {labels: value for (name, labels), value in found.items() if name == "kcore_requests_total" and value}
    assert requests == {
        ("ApiVersions",): 1,
        ("Heartbeat",): 3,
        ("CreateTopics",): 1,
        ("OffsetCommit",): 1,
        ("ListGroups",): 1,
    }
    errors = {labels: value for (name, labels), value in found.items() if name == "kcore_request_errors_total"}
    assert errors == {
        ("Heartbeat", "UNKNOWN_MEMBER_ID"): 3,
        ("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
    }


def test_connections_and_bytes_are_counted(node: Watched) -> None:
    with node.live.raw() as one, node.live.raw() as other:
        request = one.request(ListGroupsRequest(), 4)
        one.send(request)
        frame = one.frame()
        assert frame is not None
        found = {name: value for (name, labels), value in node.samples().items() if not labels}
        assert found["kcore_connections"] == 2
        assert found["kcore_accepted_connections_total"] == 2
        assert found["kcore_received_bytes_total"] == len(request)
        assert found["kcore_sent_bytes_total"] == 4 + len(frame)
        other.send(b"\xff\xff\xff\xff")
        assert other.closed
        wait_until(lambda: node.samples()["kcore_connections", ()] == 1, "the connection's end")
    assert node.samples()["kcore_refused_requests_total", ()] == 1


def test_rounds_are_measured(node: Watched) -> None:
    """Six requests are committed one after the other. Each of them adds one measurement to the metrics of the commit
    (flush time) and of the wait for the commit (purgatory time).
    """
    before = node.samples()
    with node.live.connect() as client:
        make_topic(client, "t")
        for offset in range(5):
            client.send(commit("g", {("t", 0): offset}), COMMIT_VERSION)
    after = node.samples()

    def grown(name: str) -> float:
        return after[name, ()] - before[name, ()]

    assert grown("kcore_batch_flushes_total") == 6
    assert grown("kcore_batch_flush_time_seconds_count") == 6
    assert grown("kcore_event_purgatory_time_seconds_count") == 6
    assert grown("kcore_event_processing_time_seconds_count") >= 6
    assert 0 < grown("kcore_batch_flush_time_seconds_sum") <= grown("kcore_event_purgatory_time_seconds_sum")


def test_a_failed_commit_does_not_decrease_the_counters() -> None:
    """A failed commit makes a shard load its log again, and its own counters restart at 0. The node's counters must not
    decrease, because Prometheus would take this for a restart of the server.
    """
    log = FaultInjectingEngine(MemoryLogEngine())
    with watched({"offsets.topic.num.partitions": "1"}, log=log) as node, node.live.connect() as client:
        make_topic(client, "t")
        for _ in range(4):
            client.send(commit("g", {("t", 0): 1}), COMMIT_VERSION)
        log.fail_commit()
        (topic,) = client.send(commit("g", {("t", 0): 2}), COMMIT_VERSION).topics
        assert topic.partitions[0].error_code == 16
        wait_until(lambda: node.get("/readyz")[0] == 200, "the shard's load")
        found = node.samples()
        assert found["kcore_offset_commits_total", ()] == 5, (
            "the four commits, and the one that was decided and failed, are counted"
        )
        assert found["kcore_offsets", ()] == 1
        assert found["kcore_batch_flush_failures_total", ()] == 1
        assert found["kcore_classic_groups", ("Empty",)] == 1
        assert found["kcore_partition_load_time_seconds_count", ()] == 2


def test_ready_means_that_every_shard_is_loaded(node: Watched) -> None:
    assert node.get("/healthz") == (200, "ok\n")
    assert node.get("/readyz") == (200, "ready\n")
    shard = node.live.engine.groups.get(1)
    assert shard is not None
    node.live.call(lambda: setattr(shard, "state", ShardState.FAILED))
    assert node.get("/healthz") == (200, "ok\n")
    assert node.get("/readyz") == (503, "__consumer_offsets: 1 failed\n")
    assert node.samples()["kcore_partitions", ("__consumer_offsets", "failed")] == 1
    node.live.call(lambda: setattr(shard, "state", ShardState.ACTIVE))
    assert node.get("/readyz") == (200, "ready\n")


@pytest.mark.parametrize("committing", [False, True])
def test_uncommitted_state_is_not_reported(committing: bool) -> None:
    """A scrape during a round waits for the end of its commit: a group whose commit fails is never reported."""
    log = FaultInjectingEngine(MemoryLogEngine())
    with watched({"offsets.topic.num.partitions": "1"}, log=log) as node:
        with node.live.connect() as client:
            make_topic(client, "t")
        seen: list[tuple[bool, int]] = []
        writer: list[threading.Thread] = []
        connections: list[Any] = []

        class Client:
            """A transport for a scrape whose bytes arrive in the same turn of the loop in which a commit is decided."""

            def write(self, data: bytes) -> None:
                (line,) = [x for x in data.decode().splitlines() if x.startswith("kcore_offsets ")]
                seen.append((node.http.observer.round_is_open, int(line.split(" ")[1])))

            def close(self) -> None: ...

            def get_extra_info(self, name: str) -> None:
                """Returns None: there is no real connection."""

            abort = close

        def one_turn() -> None:
            from kcore.runtime import RequestContext
            from kcore.server.http import HttpConnection

            engine = node.live.engine
            node.live.driver.begin_round()
            engine.submit(RequestContext(COMMIT_VERSION), commit("g", {("t", 0): 1}))
            if committing:
                background_commit = engine.pipeline.start_background(threading.Lock())
                assert background_commit is not None
                writer.append(threading.Timer(0.05, background_commit.write))
                writer[0].start()
            connection = HttpConnection(node.http)
            connection.connection_made(Client())  # type: ignore[arg-type]
            connection.data_received(b"GET /metrics HTTP/1.1\r\n\r\n")
            connections.append(connection)
            assert seen == [], "the round is open"

        log.fail_commit()
        node.live.call(one_turn)
        wait_until(lambda: seen, "the response")
        node.live.call(lambda: connections[0].connection_lost(None))
        for thread in writer:
            thread.join()
        assert seen == [(False, 0)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics?x=1 HTTP/1.0\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nAccept: */*\r\nHOST: site.example:80\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n", b"421"),
        (b"GET /healthz HTTP/1.1\r\nHost: node.example\r\n\r\n", b"200"),
        (b"\x00\x00\x00\x10\r\n\r\n", b"400"),
        (b"GET /healthz\r\n\r\n", b"400"),
        (b"GET /" + b"x" * MAX_REQUEST_BYTES, b"431"),
        (b"GET /healthz?" + b"x" * MAX_REQUEST_BYTES + b" HTTP/1.1\r\n\r\n", b"431"),  # even if the request is complete
        (b"GET /healthz HTTP/1.1\r\n\r\n" + b"x" * MAX_REQUEST_BYTES, b"200"),
    ],
)
def test_other_requests_are_refused(sent: bytes, status: bytes) -> None:
    with watched() as node, socket.create_connection(node.http.address, timeout=20) as peer:
        peer.sendall(sent)
        response = b""
        while part := peer.recv(1 << 16):
            response += part
        assert response.split(b" ")[1] == status


def test_a_long_page_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn of the event loop passes a bounded part of the page to the socket."""
    monkeypatch.setattr(http, "WRITE_BYTES", 1)
    with watched() as node, node.live.connect() as client:
        make_topic(client, "t", 900)
        writes: list[int] = []
        write = http.HttpConnection._write

        def counted(self: http.HttpConnection, pieces: deque[bytes]) -> None:
            writes.append(len(pieces))
            write(self, pieces)

        monkeypatch.setattr(http.HttpConnection, "_write", counted)
        status, text = node.get("/metrics")
    assert status == 200
    assert text.endswith("\n")
    assert text.count("kcore_partition_log_start_offset{") == 903
    assert writes == [*range(len(writes), 0, -1)]
    assert len(writes) > 5


def test_head_has_no_body(node: Watched) -> None:
    assert node.get("/healthz", "HEAD") == (200, "")


def test_silent_connections_do_not_keep_probes_out() -> None:
    """Silent connections use up the limit of the HTTP port. A new connection closes the oldest one, so that health
    probes still succeed.
    """
    with watched() as node:
        peers = [socket.create_connection(node.http.address, timeout=20) for _ in range(MAX_CONNECTIONS)]
        try:
            wait_until(lambda: node.live.call(lambda: len(node.http.connections)) == MAX_CONNECTIONS, "all of them")
            assert node.get("/healthz") == (200, "ok\n")
            with contextlib.suppress(ConnectionResetError):
                assert peers[0].recv(1) == b""
            assert node.live.call(lambda: len(node.http.connections)) <= MAX_CONNECTIONS
        finally:
            for peer in peers:
                peer.close()
        wait_until(lambda: node.live.call(lambda: len(node.http.connections)) == 0, "room")
        assert node.get("/healthz") == (200, "ok\n")


def test_a_page_that_cannot_be_sent_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(server: HttpServer) -> Any:
        while len(server._work) < 2:
            yield
        return 200, "text/plain", "\ud800"

    monkeypatch.setattr(HttpServer, "metrics", broken)
    with watched() as node, socket.create_connection(node.http.address, timeout=20) as peer:
        peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        status, text = node.get("/api/node")
        assert status == 200
        assert '"groups"' in text
