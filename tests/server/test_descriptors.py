"""A server without free file descriptors serves its open connections, and accepts new ones once
descriptors are free.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from kcore.config.node import Config
from kcore.engine import Engine
from kcore.protocol.api_keys import ApiKey, request_class
from kcore.protocol.compression import CompressionType, compress
from kcore.protocol.messages.describe_acls import DescribeAclsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.server import server as server_module
from kcore.testing import ServerProcess
from kcore_ext.batch import BatchBuilder
from tests.kit import batch, commit, create, fetch, make_topic, produce, wait_until
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")
ANY_ACL = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def exhaust(server: ServerProcess, stack: ExitStack) -> list[socket.socket]:
    """Connects until the server has no free file descriptor. Returns the connections."""
    limit = open_files(server.pid) + 20
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, limit))
    peers = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 20)) for _ in range(25)]
    wait_until(lambda: open_files(server.pid) == limit, "no descriptor is free")
    return peers


def requests() -> Iterator[tuple[ApiKey, Any, int]]:
    """Yields one request of every served API, in its newest version."""
    with_content = {
        ApiKey.FETCH: (fetch("t"), 12),
        ApiKey.OFFSET_COMMIT: (commit("g", {("t", 0): 1}), 9),
        ApiKey.DESCRIBE_ACLS: (ANY_ACL, 3),
        ApiKey.PRODUCE: (produce("t", batch([b"x"])), 9),
    }
    engine = Engine.open(Config.of({"offsets.topic.num.partitions": "1"}))
    try:
        for key in map(ApiKey, engine.apis):
            request, version = with_content.get(key, (request_class(key)(), engine.apis[key].versions[1]))
            yield key, request, version
    finally:
        engine.close()


def zstd_batch() -> bytes:
    """Makes a batch that the server has to decompress."""
    codec = int(CompressionType.ZSTD)
    builder = BatchBuilder(1_000, base_timestamp_ms=1, compression=codec, compress=compress)
    assert builder.append(1, None, b"x" * 100)
    return bytes(builder.build())


def test_every_api_is_served_without_free_descriptors(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ExitStack() as stack:
        server = stack.enter_context(
            ServerProcess(
                tmp_path / "data",
                {"offsets.topic.num.partitions": "1", "kcore.durability": "os"},
                arguments=["--log-level", "info"],
                stderr=log,
            )
        )
        wait_until(lambda: "server: imported all APIs" in log.read_text(), "the imports")
        raw = stack.enter_context(Raw(server.port))
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25
        raw.send(raw.request(create("t"), 5))
        assert raw.receive(create("t"), 5)[1].topics[0].error_code == 0
        peers = exhaust(server, stack)
        late = stack.enter_context(Raw(server.port))
        late.send(late.request(BEAT, 4))
        wait_until(lambda: "new connections wait" in log.read_text(), "the warning")
        served = []
        for key, request, version in requests():
            raw.send(raw.request(request, version))
            correlation_id, _ = raw.receive(request, version)
            assert correlation_id == raw.correlation_id, key
            served.append(key)
        assert len(served) > 40
        packed = produce("t", zstd_batch())
        raw.send(raw.request(packed, 9))
        assert raw.receive(packed, 9)[1].responses[0].partition_responses[0].error_code == 0
        for peer in peers[:10]:
            peer.close()
        assert late.receive(BEAT, 4)[1].error_code == 25, "the connection was accepted once a descriptor was free"
    lines = [line for line in log.read_text().splitlines() if "new connections wait" in line]
    assert len(lines) == 1, lines
    assert "Too many open files; raise the open file limit or lower max.connections below it" in lines[0]
    assert "Traceback" not in log.read_text()


def test_an_api_is_imported_at_its_first_request_without_free_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients may take all descriptors right after the start, before the server has imported all APIs."""
    log = tmp_path / "log"
    (tmp_path / "sitecustomize.py").write_text(
        "import kcore.server.server as server\nserver.PRELOAD_AFTER_S = 3600.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ExitStack() as stack:
        server = stack.enter_context(
            ServerProcess(
                tmp_path / "data",
                {"offsets.topic.num.partitions": "1", "kcore.durability": "os"},
                arguments=["--log-level", "info"],
                stderr=log,
            )
        )
        raw = stack.enter_context(Raw(server.port))
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25
        exhaust(server, stack)
        raw.send(raw.request(ANY_ACL, 3))
        assert raw.receive(ANY_ACL, 3)[1].error_code == 54
        raw.send(raw.request(create("t"), 5))
        assert raw.receive(create("t"), 5)[1].topics[0].error_code == 0
    text = log.read_text()
    assert "Traceback" not in text
    assert "imported all APIs" not in text


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PRELOAD_AFTER_S", 0.0)
    monkeypatch.setattr(server_module, "PRELOAD_AGAIN_S", 0.0)


def test_apis_are_imported_soon_after_the_start(serve: Callable[..., LiveServer], now: None) -> None:
    """The imports run in slices between requests. A failed import is repeated."""
    live = serve()
    apis = live.engine.apis
    wait_until(lambda: len(apis.made) == len(apis), "all of them are made")
    with live.connect() as connection:
        make_topic(connection, "t")
    assert live.engine.topics.by_name("t") is not None


def test_a_failed_import_is_repeated(
    serve: Callable[..., LiveServer], now: None, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    failures = [OSError(24, "Too many open files")] * 2

    def fail(name: str) -> None:
        with suppress(IndexError):
            raise failures.pop()

    monkeypatch.setattr(server_module, "import_late", fail)
    live = serve()
    wait_until(lambda: len(log_lines) == 2 and not live.engine.slices, "the third attempt")
    assert failures == []
    assert log_lines[0].startswith("server: the import of an API failed (")
    assert "[Errno 24]" in log_lines[0]
