"""The operators' console: its JSON documents, hostile names, pages of long lists, slices, and the web page in a
browser.
"""

from __future__ import annotations

import asyncio
import fnmatch
import http.client
import json
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from kcore.protocol.consumer_protocol import Assignment, TopicPartition
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import RequestContext
from kcore.server.console import DOCUMENTS, STATIC, Query
from kcore.server.console.paging import (
    MAX_SHOWN,
    PAGE_ROWS,
    SLICE_CHARACTERS,
    SLICE_NAMES,
    Page,
    batches,
    contains,
    find,
)
from kcore.server.http import SECURITY_HEADERS, HttpConnection
from tests.kit import (
    COMMIT_VERSION,
    batch,
    commit,
    join,
    make_topic,
    new_member,
    produce,
    stable_alone,
    sync,
    wait_until,
)
from tests.observability.watched import Watched, watched

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "'\"&<>`${document.title='owned'}",
    "\u202egnp.exe",
    "line\nbreak\x00\x1b[31m",
    "?id=x&type=share#/topics",
    "ü" * 200,
]


def document(node: Watched, path: str, **fields: Any) -> Any:
    status, text = node.get(f"{path}?{urlencode(fields)}")
    assert status == 200, text
    assert text.isascii()
    return json.loads(text)


def page(rows: list[Any], total: int | None = None, number: int = 1, pages: int = 1) -> dict[str, Any]:
    return {"total": len(rows) if total is None else total, "page": number, "pages": pages, "rows": rows}


def group_row(name: str, state: str, members: int, lag: int | None, kind: str = "classic") -> dict[str, Any]:
    return {"id": name, "whole": True, "type": kind, "state": state, "members": members, "lag": lag}


@pytest.fixture
def node() -> Iterator[Watched]:
    with watched({"group.consumer.assignment.interval.ms": "0"}) as running:
        yield running


def many_groups(node: Watched, names: list[str]) -> None:
    """Commits an offset in one group for each name, all in one turn of the event loop."""

    def commit_all() -> None:
        node.live.driver.begin_round()
        for name in names:
            node.live.engine.submit(RequestContext(COMMIT_VERSION), commit(name, {("t", 0): 1}))

    node.live.call(commit_all)


def test_groups_are_listed_with_members_and_lag(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 2)
        client.send(produce("t", batch([b"x"] * 10), 0), 9)
        stable_alone(client, "works")
        client.send(commit("reads", {("t", 0): 4, ("t", 1): 7}), COMMIT_VERSION)
        beat = ConsumerGroupHeartbeatRequest(
            group_id="new", member_id="m", member_epoch=0, rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        assert client.send(beat).error_code == 0
    rows = {
        "new": group_row("new", "Stable", 1, 0, "consumer"),
        "reads": group_row("reads", "Empty", 0, 6),
        "works": group_row("works", "Stable", 1, 0),
    }
    assert document(node, "/api/groups") == {**page(list(rows.values())), "loading": 0}
    assert document(node, "/api/groups", search="RE") == {**page([rows["reads"]]), "loading": 0}
    assert document(node, "/api/groups", type="consumer") == {**page([rows["new"]]), "loading": 0}
    assert document(node, "/api/groups", state="Empty") == {**page([rows["reads"]]), "loading": 0}
    assert document(node, "/api/groups", type="classic", state="Stable") == {**page([rows["works"]]), "loading": 0}
    assert document(node, "/api/groups", search="nothing") == {**page([]), "loading": 0}


def test_a_group_shows_members_assignments_and_offsets(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 3)
        client.send(produce("t", batch([b"x"] * 10), 1), 9)
        member = new_member(client, "g")
        generation = client.send(join("g", member)).generation_id
        assignment = Assignment(assigned_partitions=[TopicPartition(topic="t", partitions=[2, 0])]).encode_versioned(3)
        assert client.send(sync("g", member, generation, {member: assignment})).error_code == 0
        client.send(commit("other", {("t", 1): 3, ("t", 0): 1}), COMMIT_VERSION)
    found = document(node, "/api/group", id="g")
    (row,) = found["members"]["rows"]
    shows = node.live.engine.groups.of("g").machine.groups["g"].protocol_type == "consumer"
    assert found == {
        "id": "g", "whole": True, "type": "classic", "state": "Stable", "epoch": 1, "protocol": "any", "lag": 0,
        "members": page([
            {
                "id": member, "instance_id": "", "client_id": row["client_id"], "client_host": "/127.0.0.1", "epoch": 1,
                "partitions": 2 if shows else 0,
                "assigned": [{"topic": "t", "count": 2, "numbers": [0, 2]}] if shows else [],
            }
        ]),
        "offsets": page([]),
    }  # fmt: skip
    assert document(node, "/api/group", id="other") == {
        "id": "other", "whole": True, "type": "classic", "state": "Empty", "epoch": 0, "protocol": "", "lag": 7,
        "members": page([]),
        "offsets": page([
            {"topic": "t", "partition": 0, "offset": 1, "end": 0, "pending": False, "lag": 0},
            {"topic": "t", "partition": 1, "offset": 3, "end": 10, "pending": False, "lag": 7},
        ]),
    }  # fmt: skip
    assert node.get("/api/group?id=unknown") == (404, "null\n")


def test_a_consumer_group_shows_its_epoch_and_partitions(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 60)
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", instance_id="i", member_epoch=0, rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        epoch = client.send(beat).member_epoch
    (row,) = document(node, "/api/group", id="g")["members"]["rows"]
    assert row == {
        "id": "m", "instance_id": "i", "client_id": row["client_id"], "client_host": "/127.0.0.1", "epoch": epoch,
        "partitions": 60, "assigned": [{"topic": "t", "count": 60, "numbers": list(range(50))}],
    }  # fmt: skip


def test_offsets_have_pages(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 120)
        client.send(commit("g", {("t", number): 1 for number in range(120)}), COMMIT_VERSION)
    for requested, number, partitions in ((1, 1, range(50)), (3, 3, range(100, 120)), (9, 3, range(100, 120))):
        offsets = document(node, "/api/group", id="g", offsets=requested)["offsets"]
        assert [row.pop("partition") for row in offsets["rows"]] == list(partitions)
        rest = {"topic": "t", "offset": 1, "end": 0, "pending": False, "lag": 0}
        assert offsets == page([rest] * len(partitions), 120, number, 3)


def test_topics_and_partitions_are_listed(node: Watched) -> None:
    records = batch([b"x", b"y"])
    with node.live.connect() as client:
        make_topic(client, "t", 2)
        client.send(produce("t", records, 1), 9)
    row = {"name": "t", "internal": False, "partitions": 2, "records": 2, "received_bytes": len(records)}
    assert document(node, "/api/topics", search="T") == page([
        {"name": "__consumer_offsets", "internal": True, "partitions": 3, "records": 0, "received_bytes": 0,
         "sent_bytes": 0},
        {**row, "sent_bytes": 0},
    ])  # fmt: skip
    empty = {"start": 0, "end": 0, "stable_lag": 0, "producers": 0, "open_transactions": 0}
    assert document(node, "/api/topic", name="t") == {
        "name": "t", "internal": False, "received_records": 2, "received_bytes": len(records), "sent_records": 0,
        "sent_bytes": 0, "partitions": page([{"partition": 0, **empty}, {"partition": 1, **empty, "end": 2}]),
    }  # fmt: skip
    assert node.get("/api/topic?name=unknown") == (404, "null\n")


def test_transactions_are_listed(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 2)
        client.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["open"]), 6)
        begin = InitProducerIdRequest(transactional_id="open", transaction_timeout_ms=60_000)
        started = wait_until(lambda: (found := client.send(begin, 4)).error_code == 0 and found, "the coordinator")
        idle_one = InitProducerIdRequest(transactional_id="idle", transaction_timeout_ms=30_000)
        assert client.send(idle_one, 4).error_code == 0
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="open",
            v3_and_below_producer_id=started.producer_id,
            v3_and_below_producer_epoch=started.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
        )
        client.send(added, 3)
    listed = document(node, "/api/transactions")
    idle, opened = listed["rows"]
    age_ms = opened.pop("age_ms")
    assert 0 <= age_ms < 60_000
    common = {"whole": True, "producer_epoch": 0}
    assert opened == {
        "id": "open", "state": "Ongoing", "producer_id": started.producer_id, "timeout_ms": 60_000, "partitions": 2,
        "topics": ["t"], **common,
    }  # fmt: skip
    assert idle == {
        "id": "idle", "state": "Empty", "producer_id": idle["producer_id"], "timeout_ms": 30_000, "partitions": 0,
        "topics": [], "age_ms": None, **common,
    }  # fmt: skip
    assert [row["id"] for row in document(node, "/api/transactions", state="Ongoing")["rows"]] == ["open"]
    assert document(node, "/api/transactions", search="IDL") == page([idle])


def test_the_node_is_shown(node: Watched) -> None:
    with node.live.connect() as client:
        make_topic(client, "t", 2)
        stable_alone(client, "g")
        client.send(produce("t", batch([b"x"])), 9)
    found = document(node, "/api/node")
    assert found.pop("uptime_s") > 0
    assert found.pop("connections") >= 0
    assert found.pop("requests") >= 5
    assert found.pop("commits") >= 3
    size = len(batch([b"x"]))
    engine = node.live.engine
    assert found == {
        "version": "0.1.0", "cluster_id": engine.cluster.cluster_id, "node_id": 1, "not_ready": 0,
        "groups": {
            "classic": {"Empty": 0, "PreparingRebalance": 0, "CompletingRebalance": 0, "Stable": 1, "Dead": 0},
            "consumer": {"Empty": 0, "Assigning": 0, "Reconciling": 0, "Stable": 0},
            "share": {"Empty": 0, "Stable": 0, "Dead": 0},
            "streams": {"Empty": 0, "NotReady": 0, "Assigning": 0, "Reconciling": 0, "Stable": 0},
        },
        "topics": 1, "partitions": 5, "late_transaction_partitions": 0, "failed_commits": 0,
        "transactional_ids": dict.fromkeys(
            ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"), 0
        ),
        "received_records": 1, "received_bytes": size, "sent_records": 0, "sent_bytes": 0,
    }  # fmt: skip


def test_hostile_names_are_shown_as_they_are(node: Watched) -> None:
    """JSON escapes non-ASCII characters, and the page inserts names as text. Long names are truncated."""
    long = "x" * 3_000
    with node.live.connect() as client:
        make_topic(client, "t")
    many_groups(node, [*HOSTILE, long])
    listed = document(node, "/api/groups")
    names = [*HOSTILE, "x" * MAX_SHOWN + "…"]
    assert sorted(row["id"] for row in listed["rows"]) == sorted(names)
    assert [row["id"] for row in listed["rows"] if not row["whole"]] == [names[-1]]
    for name in HOSTILE:
        assert document(node, "/api/group", id=name)["id"] == name
        assert name in [row["id"] for row in document(node, "/api/groups", search=name)["rows"]]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/groups?page=0", 200),
        ("/api/groups?page=-1", 400),
        ("/api/groups?page=x", 400),
        ("/api/groups?page=%C2%B2", 400),
        ("/api/groups?page=1234567890", 400),
        ("/api/groups?search=%FF", 400),
        ("/api/groups?" + "a=1&" * 20, 400),
        ("/api/group", 404),
        ("/api/topic", 404),
        ("/api/", 404),
        ("/static/console.js", 404),
        ("/console.js/../index.html", 404),
    ],
)
def test_invalid_queries_are_refused(node: Watched, target: str, status: int) -> None:
    assert node.get(target)[0] == status


def test_an_unknown_path_gets_the_list_of_valid_ones(node: Watched) -> None:
    status, text = node.get("/api/")
    paths = text.removeprefix("not found; valid paths: ").rstrip("\n").split(", ")
    assert (status, "/" in paths) == (404, True)
    assert {path: node.get(path)[0] for path in paths if path not in {"/api/group", "/api/topic"}} == {
        path: 200 for path in paths if path not in {"/api/group", "/api/topic"}
    }


def test_a_list_of_ten_thousand_groups_never_holds_the_loop(node: Watched) -> None:
    """A slice visits a bounded number of names. The list is sorted, and the last page costs as much as the first."""
    with node.live.connect() as client:
        make_topic(client, "t")
    names = [f"group-{number:05}" for number in range(10_000)]
    many_groups(node, names)
    observer = node.http.observer

    def slices(**fields: Any) -> tuple[int, Any]:
        work = DOCUMENTS["/api/groups"](observer, Query(urlencode(fields)))
        count = 0
        while True:
            try:
                next(work)
            except StopIteration as done:
                return count, done.value
            count += 1

    for number, first in ((1, 0), (200, 9_950)):
        count, found = node.live.call(lambda number=number: slices(page=number))
        assert found == {
            **page([group_row(name, "Empty", 0, 0) for name in names[first : first + PAGE_ROWS]], 10_000, number, 200),
            "loading": 0,
        }
        assert count >= 10_000 // SLICE_NAMES
    assert node.live.call(lambda: slices(search="-0777"))[1]["total"] == 10


def test_a_slice_looks_at_a_bounded_number_of_characters() -> None:
    """Clients choose names of up to 32,767 characters, so searching 2,000 names may take long."""
    names = [f"{number:04}" + "n" * 30_000 for number in range(1_000)]
    runs = list(batches(names))
    assert [name for run in runs for name in run] == names
    assert max(sum(map(len, run)) for run in runs) <= SLICE_CHARACTERS
    assert [len(run) for run in batches(["n"] * 5_000)] == [SLICE_NAMES, SLICE_NAMES, 1_000]
    work, count = find(runs, contains("N"), 20), 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            found = done.value
            break
        count += 1
    assert found == (Page(1_000, 20, 20), names[950:])
    assert count >= 2 * sum(map(len, names)) // SLICE_CHARACTERS - 1, "it searches and merges in slices"


def test_documents_take_turns_and_requests_come_between() -> None:
    """However many documents are requested, only one slice runs in each turn of the loop."""
    log: list[str] = []

    class Client:
        def write(self, data: bytes) -> None:
            log.append(json.loads(data.partition(b"\r\n\r\n")[2]))

        def close(self) -> None: ...

        abort = close

    with watched() as node:

        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            turns = 0

            def turn() -> None:
                nonlocal turns
                turns += 1
                log.append("turn")
                if turns < 9:
                    loop.call_soon(turn)

            def work(name: str, slices: int) -> Any:
                for _ in range(slices):
                    log.append(name)
                    yield
                return 200, "application/json", f'"{name} is done"'

            connections = []
            for name, slices in (("a", 3), ("b", 1), ("gone", 9)):
                connection = HttpConnection(node.http)
                connection.connection_made(Client())  # type: ignore[arg-type]
                connections.append(connection)
                node.http.add_work(connection, "GET", work(name, slices))
            loop.call_soon(turn)
            await asyncio.sleep(0)
            connections[2].connection_lost(None)
            while "a is done" not in log:
                await asyncio.sleep(0)
            for connection in connections[:2]:
                connection.connection_lost(None)

        asyncio.run_coroutine_threadsafe(scenario(), node.live.loop).result(20)
    slices = [entry for entry in log if entry != "turn"]
    assert slices == ["a", "b", "a", "b is done", "a", "a is done"]
    between = "".join("T" if entry == "turn" else "s" for entry in log)
    assert "ss" not in between.rstrip("s"), "a turn of the loop has one slice"


def test_a_client_that_sends_no_more_gets_its_response(node: Watched) -> None:
    """A client closes its sending side right after the request. It still gets the response, which slices produce."""
    for path, start in (("/metrics", b"# HELP"), ("/api/topics", b'{"total"')):
        with socket.create_connection(node.http.address, timeout=20) as peer:
            peer.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            peer.shutdown(socket.SHUT_WR)
            response = b""
            while part := peer.recv(1 << 16):
                response += part
        assert response.partition(b"\r\n\r\n")[2].startswith(start)


def test_a_document_that_fails_is_an_error(node: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(observer: Any, query: Query) -> Any:
        yield
        raise RuntimeError("a bug")

    monkeypatch.setitem(DOCUMENTS, "/api/node", fail)
    assert node.get("/api/node") == (500, "internal server error\n")
    assert node.get("/api/topics")[0] == 200


def test_every_response_has_the_headers_that_keep_names_harmless(node: Watched) -> None:
    host, port = node.http.address
    types = {
        "/": "text/html; charset=utf-8",
        "/console.js": "text/javascript; charset=utf-8",
        "/console.css": "text/css; charset=utf-8",
        "/api/groups": "application/json",
        "/metrics": "text/plain; version=0.0.4; charset=utf-8",
    }
    for path, content_type in types.items():
        connection = http.client.HTTPConnection(host, port, timeout=20)
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        headers = dict(response.getheaders())
        assert headers["Content-Type"] == content_type
        assert {f"{name}: {headers[name]}" for name in headers} >= set(SECURITY_HEADERS)
        connection.close()
    policy = next(header for header in SECURITY_HEADERS if header.startswith("Content-Security-Policy"))
    assert "unsafe" not in policy


def test_the_page_loads_nothing_from_elsewhere_and_sets_names_as_text() -> None:
    folder = ROOT / "kcore" / "server" / "console" / "static"
    assert {file.name for file in folder.iterdir()} == {name for name, _ in STATIC.values()}
    for file in folder.iterdir():
        text = file.read_text()
        assert "://" not in text, file
        for markup in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=", "style="):
            assert markup not in text, (file, markup)


def test_the_page_is_part_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    manifest = (ROOT / "MANIFEST.in").read_text()
    for name, _ in STATIC.values():
        assert any(fnmatch.fnmatch(f"static/{name}", each) for each in settings["kcore.server.console"])
    assert "include kcore/server/console/static/*" in manifest.splitlines()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def browse(url: str, profile: Path) -> str:
    """Opens a page in a browser and returns its elements after 8 s of the page's time."""
    assert CHROMIUM is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    result = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={profile}", "--virtual-time-budget=8000", "--dump-dom", url],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return result.stdout


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)")
def test_a_browser_shows_hostile_names_as_text(node: Watched, tmp_path: Path) -> None:
    """The page reloads its data every few seconds. Names neither run as scripts nor become elements."""
    with node.live.connect() as client:
        make_topic(client, "t")
        stable_alone(client, HOSTILE[0])
    many_groups(node, HOSTILE)
    requests: list[Any] = []
    make = node.http.document

    def counted(document: Any, query: Query) -> Any:
        requests.append(document)
        return make(document, query)

    node.http.document = counted  # type: ignore[method-assign]
    host, port = node.http.address
    groups = browse(f"http://{host}:{port}/#/groups", tmp_path)
    assert "<title>kcore</title>" in groups
    assert requests.count(DOCUMENTS["/api/groups"]) >= 2, "the page refreshes itself"
    result = groups.partition('<div id="result">')[2]
    assert "<img" not in result
    assert "<script>" not in result
    assert "&lt;img src=x onerror=\"document.title='owned'\"&gt;</a>" in result
    assert "\\u{202e}gnp.exe</a>" in result
    assert "line\\u{a}break\\u{0}\\u{1b}[31m</a>" in result
    group = browse(f"http://{host}:{port}/#/group?{urlencode({'id': HOSTILE[0]})}", tmp_path)
    assert "<title>kcore</title>" in group
    assert "<h2>&lt;img src=x onerror=\"document.title='owned'\"&gt;</h2>" in group
    assert '<b class="">classic</b><span>type</span>' in group
    node_page = browse(f"http://{host}:{port}/", tmp_path)
    assert "<h2>Node 1</h2>" in node_page
    missing = browse(f"http://{host}:{port}/#/topic?name=unknown", tmp_path)
    assert "It does not exist, or not any more." in missing
