"""Several processes over one folder, under clients of several libraries, while processes are killed and stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import kcore
from kcore.cli import main
from kcore.client import Connection
from kcore.cluster.urls import open_store
from kcore.log import LmdbLogEngine, verify_folder
from kcore.log.data_folder import DataFolder
from kcore.log.errors import DataFolderError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.kit import wait_until
from tests.processes.supervised import ENDS_S, Supervised, free_ports
from tests.processes.workers import finish, make_topic, start_all, wait_progress

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.timeout(300)]

SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


def test_a_killed_process_is_replaced_and_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with Supervised(tmp_path, 2, SETTINGS) as cluster:
        workers = start_all(cluster.bootstrap)
        for node_id in (1, 2):
            pid = cluster.send(node_id, signal.SIGKILL)
            wait_progress(workers)
            cluster.wait_replaced(node_id, pid)
            wait_progress(workers)
        finish(workers)
        assert cluster.stop() == 0
    assert verify_folder(cluster.data) == []


@pytest.mark.long
def test_a_stopped_process_is_fenced_then_killed_and_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with Supervised(tmp_path, 3, SETTINGS) as cluster:
        workers = start_all(cluster.bootstrap)
        for node_id in (1, 2, 3):
            # A short pause ends nothing.
            pid = cluster.send(node_id, signal.SIGSTOP)
            cluster.send(node_id, signal.SIGCONT)
            wait_progress(workers)
            assert cluster.pid(node_id) == pid
            cluster.send(node_id, signal.SIGSTOP)
            cluster.wait_replaced(node_id, pid)
            wait_progress(workers)
        finish(workers)
        assert cluster.stop() == 0
    assert verify_folder(cluster.data) == []


@pytest.mark.long
def test_a_rolling_restart_loses_no_acknowledged_write(tmp_path: Path) -> None:
    with Supervised(tmp_path, 3, SETTINGS) as cluster:
        workers = start_all(cluster.bootstrap)
        for node_id in (1, 2, 3):
            pid = cluster.send(node_id, signal.SIGTERM)
            cluster.wait_replaced(node_id, pid)
            wait_progress(workers)
        finish(workers)
        assert cluster.stop() == 0
    assert verify_folder(cluster.data) == []


def test_a_terminated_process_ends_with_status_0(tmp_path: Path) -> None:
    with Supervised(tmp_path, 2, SETTINGS) as cluster:
        cluster.wait_replaced(1, cluster.send(1, signal.SIGTERM))
        assert cluster.stop() == 0
    lines = cluster.log.read_text()
    assert "INFO kcore.serve: server: received SIGTERM, and ends in an orderly way  node=1\n" in lines
    assert "INFO kcore.serve: server: has ended in an orderly way  node=1\n" in lines
    assert "INFO kcore.serve: cluster: the process of node 1 has ended in an orderly way (status 0), as after" in lines
    assert "INFO kcore.serve: cluster: all processes have ended\n" in lines
    assert " ERROR " not in lines
    assert "ended without closing the folder" not in lines


def is_free(data: Path) -> bool:
    """Returns True if no process has the folder's lock."""
    try:
        DataFolder(data, create=False, check=False).release()
    except DataFolderError:
        return False
    return True


def test_a_killed_supervisor_leaves_no_process_and_no_loss(tmp_path: Path) -> None:
    with Supervised(tmp_path, 2, SETTINGS) as cluster:
        make_topic(cluster.bootstrap, "t")
        with kcore.connect(cluster.bootstrap) as node:
            node.group("g").commit({("t", 0): 7})
        assert len(cluster.pids()) == 2
        cluster.supervisor.kill()
        cluster.supervisor.wait()
        wait_until(lambda: is_free(cluster.data), "all processes have ended", ENDS_S)
        assert cluster.pids() == {}
        with kcore.open(cluster.data) as node:  # one process serves the folder
            assert node.group("g").committed()["t", 0].offset == 7
            node.group("g").commit({("t", 0): 8})
        cluster.processes = 3
        cluster.ports = []
        cluster.start()
        with kcore.connect(cluster.bootstrap) as node:
            assert node.group("g").committed()["t", 0].offset == 8
        assert cluster.stop(signal.SIGINT) == 0


def test_a_process_that_inherited_the_lock_keeps_the_folder_locked(tmp_path: Path) -> None:
    LmdbLogEngine(tmp_path / "data", "os").close()
    folder = DataFolder(tmp_path / "data")
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=folder.lock_descriptors()) as child:
        folder.abandon_in_child()  # closes without unlocking, as the death of this process would
        with pytest.raises(DataFolderError, match="in use"):
            verify_folder(tmp_path / "data")
        child.communicate(b"\n")
    assert verify_folder(tmp_path / "data") == []


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kcore", "serve", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_taken_port_ends_all_processes(tmp_path: Path) -> None:
    with Supervised(tmp_path, 1, SETTINGS) as cluster:
        port = cluster.ports[0]
        done = serve("--processes", "2", "--data", str(tmp_path / "other"), "--listen", f"127.0.0.1:{port - 1}")
    assert done.returncode == 1
    assert "cannot start" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "2"], "needs a data folder"),
        (["--processes", "0", "--data", "d"], "at least 1"),
        (["--processes", "2", "--data", "d", "--listen", "127.0.0.1:0"], "needs a fixed port"),
        (["--processes", "2", "--data", "d", "--listen", "127.0.0.1:\u00b3"], "needs a fixed port"),
        (["--processes", "2", "--data", "d", "--listen", "127.0.0.1:65535"], "too few ports"),
        (
            ["--processes", "2", "--data", "d", "-c", "listeners=A://:9092,B://:9093"],
            "two processes would listen on :9093",
        ),
        (["--processes", "2", "--data", "d", "--cluster", "memory://x"], "exclude each other"),
    ],
)
def test_unusable_arguments_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_process_killed_before_it_served_starts_again(tmp_path: Path) -> None:
    """A process is killed during its start, before it serves. The supervisor starts it again, and the cluster works."""
    cluster = Supervised(tmp_path, 2, SETTINGS)
    cluster.ports = next(free_ports(2))
    cluster.launch()
    try:
        os.kill(cluster.child(), signal.SIGKILL)
        wait_until(cluster.has_begun, "both processes serve", ENDS_S)
        assert cluster.supervisor.poll() is None
    finally:
        status = cluster.stop()
    assert status == 0
    assert "the process of node 1 was killed by SIGKILL; kcore starts it again in " in cluster.log.read_text()


def test_the_cluster_ends_when_its_folder_is_removed(tmp_path: Path) -> None:
    """The supervisor ends if the data folder is removed. Otherwise it would restart its processes again and again."""
    with Supervised(tmp_path, 1, SETTINGS) as cluster:
        pid = cluster.pid(1)
        shutil.rmtree(cluster.data / "cluster")
        os.kill(pid, signal.SIGKILL)
        assert cluster.supervisor.wait(ENDS_S) == 1
    assert "cluster was removed" in cluster.log.read_text()


def test_a_client_cannot_act_as_a_node(tmp_path: Path) -> None:
    """A client sends a BrokerHeartbeat in the name of a node, but without the node's secret, and is refused.

    Without an authorizer, only the secrets distinguish nodes from clients. The nodes read each other's secrets from the
    store.
    """
    with Supervised(tmp_path, 2, SETTINGS) as cluster:
        with closing(open_store(f"local://{cluster.data}")) as store:
            controller = store.controller()
            nodes = {node.node_id: node for node in store.nodes()}
        assert controller is not None
        host, port = "127.0.0.1", cluster.ports[controller.holder - 1]
        victim = nodes[3 - controller.holder]
        request = BrokerHeartbeatRequest(broker_id=victim.node_id, broker_epoch=victim.lease.epoch, want_shut_down=True)

        def code(client_id: str) -> int:
            with Connection(host, port, client_id=client_id) as connection:
                return int(connection.send(request, 0).error_code)

        def check_forged() -> None:
            names = ("kcore", "kcore-node", "kcore-node/", "kcore-node/00")
            assert {code(name) for name in names} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

        check_forged()
        # A node that has just registered repeats its request until the controller has read its secret.
        genuine = f"kcore-node/{victim.description.secret}"
        wait_until(lambda: code(genuine) == ErrorCode.NONE, "the controller accepts the node's secret")
        check_forged()
        assert victim.description.secret not in cluster.log.read_text()
        assert cluster.stop() == 0
