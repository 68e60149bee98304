"""Lost requests, lost responses and unresponsive connections at every message to PostgreSQL: the store never reports a
wrong outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest

from kcore.cluster.postgresql import PostgresClusterStore, lease_calls, writer
from kcore.cluster.postgresql.sessions import SETTINGS
from kcore.cluster.store import METADATA, Lease
from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import record
from tests.kit import wait_until
from tests.log.batches import batch, contents, key, stamped
from tests.postgresql.proxy import MODES, Proxy
from tests.postgresql.servers import Server
from tests.postgresql.shared import PostgresShared

T = TypeVar("T")
TIMEOUT_S = 0.4
INTERRUPTS = (MemoryError, KeyboardInterrupt)
RETRIABLE = (StoreUnavailableError, UnknownOutcomeError, *INTERRUPTS)


@pytest.fixture
def shared(reused_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresShared]:
    store = PostgresShared(reused_url, monkeypatch)
    yield store
    store.close()


@pytest.fixture
def proxy(primary: Server) -> Iterator[Proxy]:
    made = Proxy(primary.port)
    yield made
    made.release()
    made.close()


def registered(shared: PostgresShared) -> Lease:
    """Registers node 2 over a connection without faults, and closes the connection. The short time limits apply to this
    connection, too, so PostgreSQL or the store may end it on a busy machine.
    """
    store = shared.open()
    lease = persist(lambda: store.register(2, description(), TTL_MS))
    store.close()
    return lease


def through(proxy: Proxy, shared: PostgresShared) -> PostgresClusterStore:
    """Opens a store with short time limits whose messages pass through the proxy."""
    store = shared.open(proxy.url(shared.url.rsplit("/", 1)[1]))
    store.sessions.timeout_s = TIMEOUT_S
    return store


def persist(call: Callable[[], T]) -> T:
    """Repeats a call until the store can be reached."""
    result: list[T] = []

    def attempt() -> bool:
        try:
            result.append(call())
        except RETRIABLE:
            return False
        return True

    wait_until(attempt, "the store")
    return result[0]


def commit(engine: SharedLogEngine, stage: Callable[[], Any], is_stored: Callable[[], bool]) -> None:
    """Stages and commits a change, and repeats this until it is stored. After an error, stages it again only if the
    store does not have it.
    """

    def attempt() -> bool:
        if not is_stored():
            stage()
            engine.commit()
        return True

    def recover() -> bool:
        engine.recover()
        return True

    wait_until(lambda: _try(attempt) or not persist(recover), "the commit")


def _try(call: Callable[[], bool]) -> bool:
    try:
        return call()
    except RETRIABLE:
        return False


class Scenario:
    """Performs each kind of work of a node, repeats operations that did not reach the store, and checks the result.

    Args:
        store: the store of node 1.
        other: the lease of node 2, which the scenario fences.
    """

    def __init__(self, store: PostgresClusterStore, other: Lease) -> None:
        self.store = store
        self.other = other
        self.expected: list[bytes] = []

    def run(self) -> None:
        lease = persist(lambda: self.store.register(1, description(), TTL_MS))
        assert persist(lambda: self.store.renew([lease], TTL_MS)) == [True]
        controller = persist(lambda: self.store.take_controller(lease, TTL_MS))
        assert controller is not None
        engine = SharedLogEngine(self.store.storage())
        persist(lambda: engine.adopt([Leadership(METADATA, controller.epoch)]))
        commit(engine, lambda: self._create(engine), lambda: engine.open(METADATA).high_watermark > 0)
        [log] = persist(lambda: engine.adopt([Leadership(key(0), 0)]))
        for number in range(4):
            data = batch(fill=number)
            commit(engine, lambda data=data: log.append(data, 0), lambda end=number: log.high_watermark > end)  # type: ignore[misc]
            self.expected.append(stamped(data, number, 0))
        commit(engine, lambda: log.delete_before(1), lambda: log.log_start_offset == 1)
        persist(lambda: engine.reclaim(10))
        assert persist(lambda: contents(log)) == self.expected[1:]
        assert persist(self.store.controller) is not None
        assert persist(lambda: self.store.renew([lease, controller], TTL_MS)) == [True, True]
        assert persist(lambda: self.store.set_draining(2, True))
        # A repetition finds the node fenced, and returns False.
        persist(lambda: self.store.fence(self.other, controller, force=True))
        assert [node.fenced for node in persist(self.store.nodes)] == [False, True]
        persist(lambda: self.store.release_controller(controller))
        persist(lambda: self.store.unregister(lease))

    @staticmethod
    def _create(engine: SharedLogEngine) -> None:
        record(engine)
        engine.put_meta("name", b"value")
        engine.create(key(0), 1, 0)


def check_stored(shared: PostgresShared, scenario: Scenario) -> None:
    # A failed creation leaves a gap in the numbers of partitions.
    rows = shared.execute("SELECT number > 0, base_offset, batch FROM batches ORDER BY number, base_offset")
    assert [row[:2] for row in rows] == [(False, 0), (True, 1), (True, 2), (True, 3)]
    assert [data for _, _, data in rows[1:]] == scenario.expected[1:]
    assert shared.execute("SELECT value FROM named_values") == [(b"value",)]
    assert shared.execute("SELECT leader, leader_epoch FROM partitions WHERE number > 0") == [(1, 0)]
    nodes = shared.execute("SELECT node_id, session, epoch, draining FROM nodes ORDER BY node_id")
    assert [(node_id, session) for node_id, session, _, _ in nodes] == [(1, 0), (2, 0)]
    leases = shared.execute("SELECT name FROM leases WHERE expires_at > statement_timestamp()")
    assert leases == [], "the scenario has ended all leases"


@pytest.mark.parametrize(
    ("mode", "step"),
    [("drop request", 13), ("drop response", 13), ("hold request", 29), ("hold response", 29)],
)
def test_scenario_survives_a_fault_at_some_messages(
    shared: PostgresShared, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, mode: str, step: int
) -> None:
    assert faults(shared, proxy, monkeypatch, mode, step) >= MESSAGES // step


def test_registration_ends_behind_a_black_hole(
    shared: PostgresShared, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node registers itself, and a statement gets no response. The registration fails at its time limit, and the next
    attempt succeeds.
    """
    monkeypatch.setattr(lease_calls, "CALL_TIMEOUT_S", TIMEOUT_S)
    for text in (b"BEGIN", b"UPDATE cluster", b"SELECT pg_is_in_recovery", b"FROM kcore_schema"):
        shared.execute("UPDATE cluster SET timeline = 0")
        store = through(proxy, shared)
        proxy.fail_at(text, "hold request")
        assert persist(lambda: store.register(1, description(), TTL_MS)).epoch == 1  # noqa: B023
        assert proxy.failed.is_set()
        store.close()
        proxy.release()
        shared.reset()


def test_the_other_node_is_registered_although_its_connection_ends(shared: PostgresShared, proxy: Proxy) -> None:
    """The tests above register node 2 with the short time limits that they set, so a pause may end its connection."""
    shared.url = proxy.url(shared.url.rsplit("/", 1)[1])
    proxy.fail_at(b"INSERT INTO leases", "drop request")
    assert registered(shared).holder == 2
    assert proxy.failed.is_set()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_scenario_survives_a_fault_at_every_message(
    shared: PostgresShared, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    assert faults(shared, proxy, monkeypatch, mode, 1) >= MESSAGES


MESSAGES = 40
"""Minimum number of messages to PostgreSQL that a whole run of the scenario sends; the test fails below it."""


def faults(shared: PostgresShared, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, mode: str, step: int) -> int:
    """Runs the scenario with a fault at every `step`-th message, and checks the stored result. Returns the number of
    faults.
    """
    monkeypatch.setattr(lease_calls, "CALL_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setitem(SETTINGS, "lock_timeout", "100ms")
    monkeypatch.setitem(SETTINGS, "idle_in_transaction_session_timeout", "300ms")
    nth = 1 + (0 if step == 1 else step // 2)
    count = 0
    while True:
        scenario = Scenario(through(proxy, shared), registered(shared))
        proxy.fail(nth, mode)
        before = proxy.requests
        scenario.run()
        reached = proxy.requests - before >= nth
        scenario.store.close()
        proxy.release()
        check_stored(shared, scenario)
        if not reached:
            break
        count += 1
        nth += step
        shared.reset()
    return count


class Interrupted:
    """A patch that raises an exception at one wait for PostgreSQL: before or after wait number `nth` of a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *, after: bool) -> None:
        self.waits = 0
        self.nth = 0
        self._thread = threading.get_ident()
        self._after = after
        self._error = error
        for owner, name in ((psycopg.Connection, "wait"), (writer, "append")):
            monkeypatch.setattr(owner, name, self._interruptible(getattr(owner, name)))

    def _interruptible(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:  # becomes a method of each connection
            return self._interrupted(function, *args, **kwargs)

        return call

    def _interrupted(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `function`, which waits for PostgreSQL. Raises the exception if this is wait number `nth`."""
        if threading.get_ident() != self._thread:
            return function(*args, **kwargs)
        self.waits += 1
        chosen = self.waits == self.nth
        if chosen and not self._after:
            raise self._error
        result = function(*args, **kwargs)
        if chosen:
            raise self._error
        return result


WAITS = 60
"""Minimum number of waits for PostgreSQL in a whole run of the scenario; the test fails below it."""


def interrupted(
    shared: PostgresShared, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], after: bool, step: int
) -> int:
    """Runs the scenario with an exception at every `step`-th wait, and checks the stored result. Returns the number of
    exceptions.
    """
    monkeypatch.setitem(SETTINGS, "lock_timeout", "100ms")
    monkeypatch.setitem(SETTINGS, "idle_in_transaction_session_timeout", "300ms")
    with monkeypatch.context() as patch:
        waits = Interrupted(patch, error, after=after)
        nth, count = 1 + (0 if step == 1 else step // 2), 0
        while True:
            waits.nth = 0
            scenario = Scenario(shared.open(), registered(shared))
            waits.waits, waits.nth = 0, nth
            scenario.run()
            reached = waits.waits >= nth
            waits.nth = 0
            scenario.store.close()
            check_stored(shared, scenario)
            if not reached:
                return count
            count += 1
            nth += step
            shared.reset()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_exception_at_some_statements_loses_no_acknowledged_write(
    shared: PostgresShared, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], after: bool
) -> None:
    assert interrupted(shared, monkeypatch, error, after, 29) >= WAITS // 29


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_exception_at_every_statement_loses_no_acknowledged_write(
    shared: PostgresShared, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], after: bool
) -> None:
    assert interrupted(shared, monkeypatch, error, after, 1) >= WAITS


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", INTERRUPTS)
def test_a_connection_is_used_no_more_after_an_interrupted_begin(
    shared: PostgresShared, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], after: bool
) -> None:
    """A renewal is interrupted in BEGIN, and the next renewal succeeds with another connection.

    On the old connection, psycopg considers the transaction open and would refuse the next BEGIN.
    """
    store = shared.open()
    lease = store.register(1, description(), TTL_MS)
    waits = Interrupted(monkeypatch, error, after=after)
    for nth in (1, 2, 3):
        waits.waits, waits.nth = 0, nth
        with pytest.raises(error):
            store.renew([lease], TTL_MS)
        assert store.renew([lease], TTL_MS) == [True]
