"""Locks of dead connections, notifications, and a database that was restored to an earlier state."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kcore.cluster.postgresql.sessions import SETTINGS, Watchdog
from kcore.log.errors import (
    FencedWriteError,
    NodeAliveError,
    StoreRewoundError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import become_controller, create
from tests.kit import wait_until
from tests.log.batches import batch, contents, fill, key, stamped
from tests.postgresql.servers import Server
from tests.postgresql.shared import PostgresShared


@pytest.fixture
def shared(reused_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresShared]:
    monkeypatch.setitem(SETTINGS, "lock_timeout", "200ms")
    store = PostgresShared(reused_url, monkeypatch)
    yield store
    store.close()


def locked(shared: PostgresShared, node_id: int) -> psycopg.Connection[tuple[object, ...]]:
    """Locks the row of a node, like a server process in an unfinished transaction whose client is gone."""
    connection = psycopg.connect(shared.url, application_name=f"kcore/{node_id}/writer")
    connection.execute("UPDATE kcore.nodes SET round = 77 WHERE node_id = %s", (node_id,))
    return connection


def is_ended(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    with pytest.raises(psycopg.Error) as error:
        connection.execute("SELECT 1")
    return error.value.sqlstate in ("57P01", None)


def test_fencing_ends_a_round_that_was_cut_in_the_middle(shared: PostgresShared) -> None:
    store, lease, _ = shared.node(1)
    other, second, _ = shared.node(2)
    controller = store.take_controller(lease, TTL_MS)
    dead = locked(shared, 2)
    shared.advance(TTL_MS - 1)
    assert controller is not None
    store.renew([lease, controller], TTL_MS)
    shared.advance(1)
    assert store.fence(second, controller)
    assert is_ended(dead)
    assert store.nodes()[1].fenced
    assert shared.execute("SELECT round FROM nodes WHERE node_id = 2") == [(0,)]
    assert other.renew([second], TTL_MS) == [False]


def test_registration_ends_a_round_of_the_earlier_incarnation(shared: PostgresShared) -> None:
    shared.node(1)
    dead = locked(shared, 1)
    with pytest.raises(NodeAliveError):
        shared.open().register(1, description(), TTL_MS)
    assert dead.execute("SELECT 1").fetchall() == [(1,)], "the node is alive, so its connections are left alone"
    shared.advance(TTL_MS)
    assert shared.open().register(1, description(), TTL_MS).epoch == 2
    assert is_ended(dead)


def test_resolving_a_write_ends_the_interrupted_transaction(shared: PostgresShared, primary: Server) -> None:
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    create(engine, {0: 1})
    [log] = engine.adopt([Leadership(key(), 0)])
    stored = fill(log, engine, 2)
    log.append(batch(), 0)
    sealed = engine.seal()
    primary.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kcore/1/writer'")
    with pytest.raises(UnknownOutcomeError) as error:
        engine.write(sealed)
    dead = locked(shared, 1)
    engine.fail(sealed, error.value)
    assert is_ended(dead)
    assert not sealed.is_durable
    assert contents(log) == stored
    assert len(fill(log, engine, 1)) == 1


@pytest.mark.parametrize("lost", ["batches", "other batches", "rounds"])
def test_acknowledged_commits_that_are_missing_are_reported(shared: PostgresShared, primary: Server, lost: str) -> None:
    """The database lacks commits that it has acknowledged, as after a restored backup or after the promotion of an
    outdated standby. The node raises StoreRewoundError.
    """
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    create(engine, {0: 1, 1: 1})
    [log, other] = engine.adopt([Leadership(key(0), 0), Leadership(key(1), 0)])
    fill(log, engine, 2)
    fill(other, engine, 2)
    log.append(batch(), 0)
    sealed = engine.seal()
    if "batches" in lost:
        number = 2 if "other" in lost else 1
        shared.execute("DELETE FROM batches WHERE number = %s AND base_offset = 1", number)
    else:
        shared.execute("UPDATE nodes SET round = round - 1")
    primary.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kcore/1/writer'")
    with pytest.raises(UnknownOutcomeError) as error:
        engine.write(sealed)
    for _ in range(2):
        with pytest.raises(StoreRewoundError, match="acknowledged"):
            engine.fail(sealed, error.value)
    assert engine.uncertain
    assert not sealed.is_durable


def test_resolving_a_write_of_a_fenced_node_reports_the_stored_commits(shared: PostgresShared, primary: Server) -> None:
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    create(engine, {0: 1})
    [log] = engine.adopt([Leadership(key(), 0)])
    fill(log, engine, 1)
    log.append(batch(), 0)
    sealed = engine.seal()
    primary.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kcore/1/writer'")
    with pytest.raises(UnknownOutcomeError) as error:
        engine.write(sealed)
    assert shared.open().fence(lease, None, force=True)
    engine.fail(sealed, error.value)
    assert not sealed.is_durable
    log.append(batch(), 0)
    with pytest.raises(FencedWriteError) as refused:
        engine.commit()
    assert refused.value.node


def test_notifications_arrive_and_resume_after_a_lost_connection(shared: PostgresShared, primary: Server) -> None:
    store, lease, engine = shared.node(1)
    calls = threading.Semaphore(0)
    store.listen(calls.release)
    assert calls.acquire(timeout=30), "the dead connection after the new connection"
    shared.open().register(2, description(2), TTL_MS)
    assert calls.acquire(timeout=30), "the call of a registration"
    become_controller(store, lease, engine)
    assert calls.acquire(timeout=30), "the call of the controller"
    create(engine, {0: 1})
    assert calls.acquire(timeout=30), "the call of the metadata log"
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kcore/1/listener'"
    wait_until(lambda: primary.query(ended), "the listener's connection")
    assert calls.acquire(timeout=30), "after the new connection"
    store.close()


def test_a_closed_store_refuses_calls_and_leaves_no_connection(shared: PostgresShared, primary: Server) -> None:
    store, _, engine = shared.node(5)
    store.listen(lambda: None)
    assert store.storage().get_meta("x") is None
    engine.close()
    store.close()
    store.close()
    left = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'kcore/5/%'"
    wait_until(lambda: not primary.query(left), "the end of the connections")


def test_a_connection_without_a_free_descriptor_is_an_outage(
    shared: PostgresShared, primary: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, _ = shared.node(6)

    def fail(fd: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", fail)
        with pytest.raises(StoreUnavailableError, match="Too many open files"):
            store.storage().get_meta("x")
    assert store.storage().get_meta("x") is None
    open_ones = "SELECT application_name FROM pg_stat_activity WHERE application_name = 'kcore/6/reader'"
    wait_until(lambda: len(primary.query(open_ones)) == 1, "the end of the first connection")


def test_the_time_limit_of_a_call_works_after_its_thread_could_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    watchdog = Watchdog()
    ended = threading.Event()

    class Late:
        deadline = 0.0

        def end(self) -> None:
            ended.set()

    session: Any = Late()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(StoreUnavailableError, match="can't start new thread"), watchdog.limit(session, 10):
            raise AssertionError("a call without a time limit")
    with watchdog.limit(session, 0):
        wait_until(ended.is_set, "the end of the call")
    watchdog.stop()


def test_the_statement_of_appends_is_prepared_again_after_its_deallocation(shared: PostgresShared) -> None:
    """The connection's prepared statements are deallocated, as psycopg does after a ROLLBACK. The next append prepares
    its statement again and succeeds on the same connection.
    """
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    create(engine, {0: 1})
    [log] = engine.adopt([Leadership(key(), 0)])
    stored = fill(log, engine, 2)
    session = engine._storage._writer._session  # type: ignore[attr-defined]
    session.connection.execute("DEALLOCATE ALL")
    stored += fill(log, engine, 1)
    assert engine._storage._writer._session is session, "the connection is kept"  # type: ignore[attr-defined]
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.transact_at_once([("SELECT 1 / 0", None)])
    stored += fill(log, engine, 2)
    assert contents(log) == stored


def test_a_round_that_is_larger_than_the_buffers_of_a_socket_is_stored(shared: PostgresShared) -> None:
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    create(engine, {0: 1})
    [log] = engine.adopt([Leadership(key(), 0)])
    stored = fill(log, engine, 1)
    stored += fill(log, engine, 40, size_bytes=300_000)
    assert contents(log) == stored


def test_a_round_is_repeated_after_it_has_waited_too_long_for_a_lock(shared: PostgresShared, primary: Server) -> None:
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    create(engine, {0: 1})
    [log] = engine.adopt([Leadership(key(), 0)])
    stored = fill(log, engine, 1)
    lock = psycopg.connect(shared.url)
    lock.execute("SELECT 1 FROM kcore.partitions FOR UPDATE")
    log.append(batch(), 0)
    committing = threading.Thread(target=engine.commit)
    committing.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'kcore/1/writer' AND wait_event_type = 'Lock'"
    wait_until(lambda: primary.query(waiting), "the first attempt")
    wait_until(lambda: not primary.query(waiting), "its failure")
    lock.close()
    committing.join(60)
    assert contents(log) == [*stored, stamped(batch(), 1, 0)]
