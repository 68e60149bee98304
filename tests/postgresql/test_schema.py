"""The changes of the database by `kcore cluster init`: creation, migration, refusal, and the rights of nodes."""

from __future__ import annotations

import threading

import psycopg
import pytest

from kcore.cluster.postgresql import schema
from kcore.cluster.postgresql.server_checks import warnings
from kcore.cluster.postgresql.sessions import Session, Sessions
from kcore.errors import ConfigError, KcoreError
from kcore.log.errors import LogError, StoreRewoundError, StoreUnavailableError
from tests.kit import wait_until
from tests.postgresql.servers import Server, Servers


def create(url: str, node_role: str | None = None) -> tuple[int, int]:
    sessions = Sessions(url)
    session = sessions.connect("init", check_schema=False)
    try:
        return schema.create(session.connection, node_role)
    finally:
        sessions.discard(session)
        sessions.close()


def connect(url: str) -> Session:
    return Sessions(url).connect("test")


def test_creation_inserts_the_cluster_id_and_the_metadata_log(url: str) -> None:
    assert create(url) == (0, 1)
    session = connect(url)
    (row,) = session.execute("SELECT length(cluster_id), next_number, timeline FROM cluster").fetchall()
    assert row == (22, 1, 0)
    assert session.execute("SELECT number, topic_id, partition, leader, leader_epoch FROM partitions").fetchall() == [
        (0, bytes(15) + b"\x01", 0, -1, 0)
    ]
    session.close()


def test_creation_can_be_repeated_and_keeps_the_cluster_id(url: str) -> None:
    create(url)
    first = connect(url).execute("SELECT cluster_id FROM cluster").fetchall()
    assert create(url) == (1, 1)
    assert connect(url).execute("SELECT cluster_id FROM cluster").fetchall() == first


def test_creations_at_the_same_time_create_one_cluster(url: str) -> None:
    results: list[tuple[int, int]] = []
    threads = [threading.Thread(target=lambda: results.append(create(url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(0, 1), (1, 1), (1, 1), (1, 1)]
    assert connect(url).execute("SELECT count(*) FROM cluster").fetchall() == [(1,)]


def test_failed_migration_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE one (a int)", "SELECT nonsense")))
    with pytest.raises(LogError, match="nonsense"):
        create(url)
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'kcore'").fetchall()
    assert rows == [(0,)]


def test_migration_applies_only_the_missing_versions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create(url)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE added (a int)",)))
    monkeypatch.setattr(schema, "VERSION", 2)
    with pytest.raises(LogError, match="has version 1, and this kcore needs version 2"):
        connect(url)
    assert create(url) == (1, 2)
    assert connect(url).execute("SELECT count(*) FROM added").fetchall() == [(0,)]


def test_newer_version_is_refused_by_nodes_and_by_the_command(url: str) -> None:
    create(url)
    connect(url).execute("INSERT INTO kcore_schema (version) VALUES (7)")
    with pytest.raises(LogError, match="has version 7, and this kcore supports versions up to 1"):
        connect(url)
    with pytest.raises(ConfigError, match="has version 7, and this kcore supports versions up to 1"):
        create(url)


def test_database_without_schema_names_the_command(url: str) -> None:
    with pytest.raises(LogError, match="kcore cluster init"):
        connect(url)


def test_node_role_may_change_rows_and_nothing_else(primary: Server, url: str) -> None:
    with pytest.raises(ConfigError, match="role 'absent_role' does not exist"):
        create(url, "absent_role")
    database = url.rsplit("/", 1)[1]
    role = f"node_{database}"
    primary.query(f"CREATE ROLE {role} LOGIN")
    create(url, role)
    session = connect(primary.url(database, role))
    session.execute("UPDATE cluster SET timeline = 0")
    session.execute("DELETE FROM batches")
    for refused in ("DROP TABLE batches", "CREATE TABLE other (a int)", "DELETE FROM kcore_schema", "TRUNCATE batches"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.connection.execute(refused.encode())
    session.close()


def test_standby_is_refused_and_the_primary_of_several_hosts_found(servers: Servers) -> None:
    primary = servers.server("one").create()
    standby = servers.server("two").copy_of(primary, synchronous=False)
    create(primary.url())
    with pytest.raises(StoreUnavailableError, match="read-only"):
        connect(standby.url())
    both = f"postgresql://kcore@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres"
    session = connect(both)
    assert session.connection.info.port == primary.port
    found = warnings(session.connection, "fsync", 2)
    assert [line.split(":")[0] for line in found] == [
        "synchronous_standby_names is empty",
        "the URL has 2 hosts, and no standby is synchronous",
    ]
    session.close()


def test_returned_primary_is_skipped_after_a_promotion(servers: Servers) -> None:
    """A standby is promoted, and then the old primary starts again. Sessions must connect to the promoted standby.

    libpq alone would connect to the old primary, because it accepts writes and is the first host in the URL.
    """
    primary = servers.server("one").create()
    standby = servers.server("two").copy_of(primary)
    create(primary.url())
    sessions = Sessions(f"postgresql://kcore@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres")
    before = sessions.connect("test")
    assert (sessions.timeline, before.connection.info.port) == (1, primary.port)
    primary.crash()
    standby.promote()
    after = sessions.connect("test")
    assert (sessions.timeline, after.connection.info.port) == (2, standby.port)
    primary.start()
    again = sessions.connect("test")
    assert again.connection.info.port == standby.port
    standby.crash()
    with pytest.raises(
        StoreRewoundError, match="is an old primary with timeline 1: a standby was promoted to timeline 2"
    ):
        sessions.connect("test")
    for session in (before, after, again):
        sessions.discard(session)
    sessions.close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_settings_that_lose_commits_are_refused(primary: Server, url: str, setting: str) -> None:
    primary.alter(**{setting: "off"})
    try:
        wait_until(lambda: primary.query(f"SHOW {setting}") == [("off",)], "the new setting")
        with pytest.raises(LogError, match=f"runs with {setting} = off"):
            create(url)
    finally:
        primary.alter(**{setting: "on"})
        wait_until(lambda: primary.query(f"SHOW {setting}") == [("on",)], "the old setting")


def test_an_unreachable_server_and_a_malformed_url_are_errors() -> None:
    with pytest.raises(StoreUnavailableError, match="cannot connect to PostgreSQL"):
        connect("postgresql://kcore@127.0.0.1:1/x")
    with pytest.raises(ConfigError, match="malformed"):
        connect("postgresql://kcore@127.0.0.1:x/x?nonsense=1")


def test_password_of_the_url_never_appears_in_an_error() -> None:
    for url in ("postgresql://kcore:secret@127.0.0.1:1/x", "postgresql://kcore:secret@127.0.0.1:1/x?nonsense=1"):
        with pytest.raises(KcoreError) as caught:
            connect(url)
        assert "secret" not in str(caught.value)
