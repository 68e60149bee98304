"""A synchronous standby: no commit is acknowledged without it, and a promotion loses no acknowledged commit."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from kcore.cluster.postgresql import lease_calls
from kcore.cluster.postgresql.sessions import SETTINGS
from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from kcore.log.write_set import WriteSet
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import become_controller, create
from tests.kit import wait_until
from tests.log.batches import batch, contents, fill, key, stamped
from tests.postgresql.servers import Server, Servers
from tests.postgresql.shared import PostgresShared

TIMEOUT_S = 0.5


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary and its synchronous standby."""
    servers = Servers()
    try:
        primary = servers.server("one").create()
        yield primary, servers.server("two").copy_of(primary)
    finally:
        servers.close()


class Node:
    """A node that is the controller and leads one partition."""

    def __init__(self, servers: tuple[Server, Server], database: str) -> None:
        primary, standby = servers
        primary.query(f"CREATE DATABASE {database}")
        self.shared = PostgresShared(primary.url(database))
        url = f"postgresql://kcore@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{database}"
        self.store = self.shared.open(url)
        self.lease = self.store.register(1, description(), TTL_MS)
        self.engine = SharedLogEngine(self.store.storage())
        self.controller = become_controller(self.store, self.lease, self.engine)
        create(self.engine, {0: 1})
        [self.log] = self.engine.adopt([Leadership(key(0), 0)])

    def shorten_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes the time limits short. The test calls this after the set-up, which may be slow on a busy machine."""
        monkeypatch.setattr(lease_calls, "CALL_TIMEOUT_S", TIMEOUT_S)
        monkeypatch.setitem(SETTINGS, "lock_timeout", "100ms")
        self.store.sessions.timeout_s = TIMEOUT_S

    def backend(self, server: Server) -> list[tuple[object, ...]]:
        """Returns the process id of the writer's PostgreSQL backend in a row, if the backend waits for the standby."""
        return server.query(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'kcore/1/writer' AND wait_event = 'SyncRep'"
        )


class Write(threading.Thread):
    """A commit that runs on another thread."""

    def __init__(self, engine: SharedLogEngine, write_set: WriteSet) -> None:
        super().__init__()
        self.engine, self.write_set = engine, write_set
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.engine.write(self.write_set)
        except BaseException as error:
            self.error = error


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_commit_whose_wait_was_ended_is_not_acknowledged(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """A commit waits for the standby, and an operator cancels this wait. PostgreSQL then reports success although no
    standby has the commit, so the node treats the outcome as unknown.
    """
    primary, standby = pair
    node = Node(pair, function)
    stored = fill(node.log, node.engine, 2)
    node.shorten_limits(monkeypatch)
    node.store.sessions.timeout_s = 30
    standby.signal(signal.SIGSTOP)
    try:
        data = batch()
        node.log.append(data, 0)
        write = Write(node.engine, node.engine.seal())
        wait_until(lambda: node.backend(primary), "the wait for the standby")
        primary.query(f"SELECT {function}(%s)", node.backend(primary)[0][0])
        write.join()
        assert isinstance(write.error, UnknownOutcomeError), write.error
        node.store.sessions.timeout_s = TIMEOUT_S
        with pytest.raises(StoreUnavailableError):
            node.engine.fail(write.write_set, write.error)
        assert node.engine.uncertain
        assert not write.write_set.is_durable
        with pytest.raises(StoreUnavailableError):
            node.engine.shared.adopt([Leadership(key(0), 0)])
        with pytest.raises(StoreUnavailableError):
            node.store.renew([node.lease], TTL_MS)
    finally:
        standby.signal(signal.SIGCONT)
    recover(node.engine)
    assert contents(node.log) == [*stored, stamped(data, 2, 0)]
    assert write.write_set.is_durable
    node.shared.close()


def recover(engine: SharedLogEngine) -> None:
    def attempt() -> bool:
        try:
            engine.recover()
        except StoreUnavailableError:
            return False
        return True

    wait_until(attempt, "the outcome")


def test_promotion_loses_no_acknowledged_round_and_extends_the_leases(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary = servers.server("one").create()
    standby = servers.server("two").copy_of(primary)
    node = Node((primary, standby), "promoted")
    node.shorten_limits(monkeypatch)
    acknowledged: list[bytes] = []
    stopped = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stopped.is_set():
                data = batch(fill=len(acknowledged) % 256)
                expected = stamped(data, node.log.high_watermark, 0)
                before = node.log.high_watermark
                with contextlib.suppress(UnknownOutcomeError, StoreUnavailableError):
                    node.log.append(data, 0)
                    node.engine.commit()
                if node.engine.uncertain:
                    recover(node.engine)
                if node.log.high_watermark > before:
                    acknowledged.append(expected)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: len(acknowledged) > 20 or failures, "rounds")
    primary.crash()
    standby.promote()
    count = len(acknowledged)
    wait_until(lambda: len(acknowledged) > count + 20 or failures, "rounds on the promoted server")
    stopped.set()
    thread.join()
    assert not failures
    assert contents(node.log) == acknowledged
    rows = standby.query("SELECT batch FROM kcore.batches WHERE number = 1 ORDER BY base_offset", database="promoted")
    assert [data for (data,) in rows] == acknowledged
    # The promoted server has another clock. The first connection for leases extends them, once.
    expire = "UPDATE kcore.leases SET expires_at = now() - interval '1 s'"
    standby.query(expire, database="promoted")
    held = node.store.controller()
    assert held is not None
    assert 0 < held.remaining_ms <= TTL_MS
    standby.query(expire, database="promoted")
    for store in (node.store, node.shared.open(standby.url("promoted"))):
        assert store.controller() == node.controller._replace(remaining_ms=0)
    node.shared.close()
