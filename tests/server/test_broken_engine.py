"""A commit fails, and a shard cannot be reset to the contents of the log. The server closes its connections, and the
process ends with status 1.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kcore
from kcore.client import Connection
from kcore.errors import EngineInterruptedError, KcoreError
from kcore.log import LogError, MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.shard import Shard
from kcore.testing import ServerProcess
from tests.kit import QUICK, commit, committed, make_topic, wait_until
from tests.server.live import LiveServer

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3"}
LONG_S = 60

SERVER = """
import os, sys
from kcore.cli import main
from kcore.log.engine import StagedLogEngine
from kcore.log.errors import LogError
from kcore.runtime.shard import Shard

flag, write = sys.argv.pop(1), StagedLogEngine.write

def fails(log, write_set):
    if os.path.exists(flag):
        os.unlink(flag)
        raise LogError("the test wants this commit to fail")
    write(log, write_set)

def failed(shard, error):
    raise MemoryError

StagedLogEngine.write, Shard.failed = fails, failed
sys.exit(main(sys.argv[1:]))
"""
"""A server whose next commit fails if the file of the first argument exists. Its shards cannot be reset."""


@pytest.fixture
def no_reset() -> Iterator[None]:
    def failed(shard: Shard[object], error: LogError) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, "failed", failed)
        yield


def code(response: object) -> int:
    return int(response.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("no_reset")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_sends_the_error_and_closes_its_connections(loop: str) -> None:
    log = FaultInjectingEngine(MemoryLogEngine())
    with LiveServer(loop=loop, log=log) as live, live.connect() as client, live.raw() as idle:
        make_topic(client, "t")
        notifications: list[str] = []
        live.call(lambda: live.driver.when_broken(lambda: notifications.append("broken")))
        live.call(lambda: log.fail_commit(1))
        assert code(client.send(commit("g", {("t", 0): 5}), 9)) == ErrorCode.NOT_COORDINATOR
        assert idle.socket.recv(1) == b""
        with pytest.raises(KcoreError):
            client.send(commit("g", {("t", 0): 5}), 9)
        assert notifications == ["broken"]
        wait_until(lambda: live.connections == 0, "the end of all connections")
        with pytest.raises(ConnectionError):
            live.raw()


@pytest.mark.usefixtures("no_reset")
async def test_the_listener_of_an_embedded_engine_closes_its_connections(tmp_path: Path) -> None:
    async with kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
        listening = await node.listen()
        async with kcore.connect_async(listening.bootstrap) as client:
            await client.topics.create("t")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(node.engine.log), "write", _refuse)
                refused = code(await client.send(commit("g", {("t", 0): 5}), 9))
            with pytest.raises(KcoreError):
                await client.send(commit("g", {("t", 0): 5}), 9)
        assert refused == ErrorCode.NOT_COORDINATOR
        with pytest.raises(EngineInterruptedError):
            await node.send(commit("g", {("t", 0): 5}), 9)
    with kcore.open(tmp_path / "data", config=SETTINGS) as again:
        assert committed(again, "g") == {}


def _refuse(log: object, write_set: object) -> None:
    raise LogError("the test wants this commit to fail")


def test_the_process_of_a_server_ends_with_status_1(tmp_path: Path) -> None:
    """The acknowledged offset is in the log, and the offset of the failed commit is not."""
    flag, data = tmp_path / "flag", tmp_path / "data"
    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = [sys.executable, "-c", SERVER, flag, "serve", "--data", data, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        listening = next(line for line in lines if " listening on " in line)
        assert any("recovered" in line for line in lines)
        with Connection.to(listening.split()[-1], client_id="kcore") as client:
            make_topic(client, "t")
            assert code(client.send(commit("g", {("t", 0): 5}), 9)) == 0
            flag.touch()
            assert code(client.send(commit("g", {("t", 0): 6}), 9)) == ErrorCode.NOT_COORDINATOR
            with pytest.raises(KcoreError):
                client.send(commit("g", {("t", 0): 7}), 9)
        _, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == 1
    assert errors.count("could not return to its last durable state after a failed commit") == 2
    assert errors.splitlines()[-1].startswith(f"kcore: {EngineInterruptedError()}")
    with ServerProcess(data, SETTINGS) as server, Connection.to(server.bootstrap, client_id="kcore") as client:
        assert committed(client, "g") == {("t", 0): 5}
