"""`kcore cluster`: init, status, drain and fence."""

from __future__ import annotations

import json

import pytest

from kcore.cli import main
from kcore.cluster.postgresql import PostgresClusterStore
from kcore.log.errors import FencedWriteError
from kcore.log.shared_engine import SharedLogEngine
from tests.cluster.conftest import description
from tests.cluster.test_shared_engine import become_controller, create
from tests.postgresql.servers import Server
from tests.postgresql.shared import PostgresShared

LONG_MS = 600_000


def test_init_creates_once_and_warns_about_a_missing_standby(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "init", url]) == 0
    first = capsys.readouterr()
    cluster_id = PostgresClusterStore(url).cluster_id()
    assert first.out == f"cluster {cluster_id}: schema version 1 (created)\n"
    assert first.err.startswith("kcore: warning: synchronous_standby_names is empty")
    assert main(["cluster", "init", url]) == 0
    assert capsys.readouterr().out == f"cluster {cluster_id}: schema version 1 (unchanged)\n"


def test_commands_before_init_name_the_init_command(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "status", url]) == 1
    assert capsys.readouterr().err == (
        "kcore: the database has no tables of a kcore cluster: first run `kcore cluster init --node-role ROLE URL`, "
        "with the owner of the database in the URL and the role of the nodes as ROLE\n"
    )


def test_init_by_a_role_without_rights_names_the_owner(
    primary: Server, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = url.rsplit("/", 1)[1]
    role = f"poor_{database}"
    primary.query(f"CREATE ROLE {role} LOGIN")
    assert main(["cluster", "init", primary.url(database, role)]) == 1
    assert capsys.readouterr().err == (
        f"kcore: PostgreSQL, creating the schema of the cluster: permission denied for database {database}; name the "
        "owner of the database in the URL\n"
    )


@pytest.mark.parametrize("action", ["init", "status"])
def test_unknown_stores_are_refused_without_their_password(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", action, "mysql://user:secret@host/db"]) == 1
    assert "the URL of a cluster must begin with one of" in (err := capsys.readouterr().err)
    assert "secret" not in err
    assert main(["cluster", "init", "memory://x"]) == 1
    assert "is created by its first node" in capsys.readouterr().err


def test_status_drain_and_fence_show_and_change_nodes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    shared = PostgresShared(url)
    store, other = shared.open(), shared.open()
    lease = store.register(1, description(1, "rack-a"), LONG_MS)
    other.register(2, description(2), LONG_MS)
    engine = SharedLogEngine(store.storage())
    become_controller(store, lease, engine)
    create(engine, {0: 1, 1: 2, 2: 2})
    assert main(["cluster", "status", url, "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(0 < row.pop("lease_ms") <= LONG_MS for row in rows)
    assert rows == [
        {
            "node": 1, "state": "alive", "controller": True, "leaders": 1, "rack": "rack-a",
            "endpoints": "PLAINTEXT://node1:9092",
        },
        {
            "node": 2, "state": "alive", "controller": False, "leaders": 2, "rack": None,
            "endpoints": "PLAINTEXT://node2:9092",
        },
    ]  # fmt: skip
    assert main(["cluster", "drain", url, "2"]) == 0
    assert store.nodes()[1].draining
    assert main(["cluster", "drain", url, "2", "--stop"]) == 0
    assert not store.nodes()[1].draining
    assert main(["cluster", "drain", url, "9"]) == 1
    assert capsys.readouterr().err == "kcore: node 9 is not registered in this cluster\n"
    assert main(["cluster", "fence", url, "2"]) == 1
    assert "node 2 is alive: its lease is valid for another " in capsys.readouterr().err
    assert main(["cluster", "fence", url, "2", "--force"]) == 0
    assert capsys.readouterr().out.startswith("node 2: fenced. The controller gives its partitions to other nodes\n")
    assert main(["cluster", "fence", url, "2"]) == 0
    assert capsys.readouterr().out == "node 2: is fenced already\n"
    with pytest.raises(FencedWriteError):
        other.take_controller(other.nodes()[1].lease, LONG_MS)
    assert main(["cluster", "status", url]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["NODE", "STATE", "CONTROLLER", "LEADERS", "LEASE-MS", "RACK", "ENDPOINTS"]
    assert out[2].split() == ["2", "fenced", "False", "2", "0", "-", "PLAINTEXT://node2:9092"]
    assert out[3] == f"cluster {store.cluster_id()}: 3 partitions, 2 without a leader alive"
    shared.close()


def test_init_grants_the_node_role_the_rights_that_nodes_need(primary: Server, url: str) -> None:
    database = url.rsplit("/", 1)[1]
    role = f"serving_{database}"
    primary.query(f"CREATE ROLE {role} LOGIN")
    assert main(["cluster", "init", "--node-role", role, url]) == 0
    store = PostgresClusterStore(primary.url(database, role))
    lease = store.register(1, description(), LONG_MS)
    engine = SharedLogEngine(store.storage())
    become_controller(store, lease, engine)
    create(engine, {0: 1})
    assert store.fence(lease, None, force=True)
    store.close()
