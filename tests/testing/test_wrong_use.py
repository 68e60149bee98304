"""Wrong use of the testing kit (wrong values, wrong order, threads, failures) gets an error at once."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kcore.client import Connection
from kcore.errors import ConfigError, EngineClosedError, KafkaError, KcoreError, ReentrantCallError
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.testing import Broker, Fault, Filter, History, RandomFaults, ServerProcess, faults, recorder, replay
from kcore.testing.arguments import MAX_SECONDS
from tests.kit import wait_until
from tests.testing.clients import confluent_producer, fill

Act = Callable[[Broker], object]

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module", autouse=True)
def short_collections() -> Iterator[None]:
    """Freezes all existing objects, so that the garbage collector ignores them. Otherwise each collection would take
    half a second because of earlier tests.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def clients_of_other_tests() -> bool:
    """Returns True if threads of other tests' clients run, which may open connections at any time."""
    native = [task / "comm" for task in Path("/proc/self/task").glob("*")]
    names = [thread.name for thread in threading.enumerate()]
    for path in native:
        with suppress(OSError):  # the thread has ended
            names.append(path.read_text())
    return any(name.startswith(("kcore", "rdk:")) for name in names)


@pytest.fixture(autouse=True)
def nothing_leaks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checks that every thread, descriptor and temporary folder of a test is gone after the test."""
    gc.collect()
    threads = set(threading.enumerate())
    descriptors = 1 << 20 if clients_of_other_tests() else len(os.listdir("/dev/fd"))
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    gc.collect()
    deadline_s = time.monotonic() + 10
    left: set[threading.Thread] = set()
    while time.monotonic() < deadline_s:
        left = {each for each in threading.enumerate() if each.name.startswith("kcore")} - threads
        if not left and len(os.listdir("/dev/fd")) <= descriptors:
            break
        time.sleep(0.01)  # a stopped thread may still be ending
    assert left == set()
    assert len(os.listdir("/dev/fd")) <= descriptors
    assert list(temporary.iterdir()) == []


def send_request(broker: Broker) -> int:
    """Sends a Metadata request. Returns the number of brokers in the response."""
    with Connection.to(broker.bootstrap) as client:
        return len(client.send(MetadataRequest(topics=[])).brokers)


# ---- values


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Broker(topics="jobs"), TypeError, r"for one topic: topics=\['jobs'\]"),
        (lambda: Broker(topics=[1]), TypeError, "the name of a topic=1: must be str"),
        (lambda: Broker(topics={"jobs": "2"}), TypeError, r"topics\['jobs'\]='2': must be int"),
        (lambda: Broker(topics={"jobs": 0}), ValueError, r"topics\['jobs'\]=0: the minimum is 1"),
        (lambda: Broker(topics={"jobs": True}), TypeError, "must be int, not bool"),
        (lambda: Broker("auto.create.topics.enable=false"), TypeError, "settings='auto"),
        (lambda: Broker({3: 4}), TypeError, "the name of a setting=3"),
        (lambda: Broker({"group.max.size": None}), TypeError, "group.max.size=None"),
        (lambda: Broker({"kcore.data.dir": "/tmp"}), ConfigError, "keeps all data in memory"),
        (lambda: Broker(port="9092"), TypeError, "port='9092'"),
        (lambda: Broker(port=70_000), ValueError, "port=70000: the maximum is 65535"),
        (lambda: Broker(port=-1), ValueError, "port=-1"),
        (lambda: ServerProcess(3), TypeError, "data=3"),
        (lambda: ServerProcess(settings=["a"]), TypeError, "settings="),
        (lambda: ServerProcess(stderr=2), TypeError, "stderr=2"),
        (lambda: RandomFaults("seven"), TypeError, "seed='seven'"),
        (lambda: RandomFaults(probability="0.1"), TypeError, "probability='0.1'"),
        (lambda: RandomFaults(probability=float("nan")), ValueError, "probability=nan"),
        (lambda: RandomFaults(apis="Prduce"), ValueError, "'Prduce' is not an API of Kafka"),
        (lambda: RandomFaults(faults=["fail"]), TypeError, "a fault='fail'"),
        (lambda: Filter(where="group"), TypeError, "where='group': must be a function"),
        (lambda: Fault("explode", ("Fetch",)), ValueError, "action='explode': valid are fail, delay"),
        (lambda: replay(3), TypeError, "log_folder=3"),
        (lambda: replay("/nowhere", at="yesterday"), ValueError, "at='yesterday'"),
        (lambda: replay("/nowhere", at=datetime(2026, 1, 1)), ValueError, "has no time zone"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_starts(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda b: b.fail("Prduce", "NOT_COORDINATOR"), ValueError, "'Prduce' is not an API"),
        (lambda b: b.fail([], "NOT_COORDINATOR"), ValueError, "needs the name of an API"),
        (lambda b: b.fail(3, "NOT_COORDINATOR"), TypeError, "api=3: must be str"),
        (lambda b: b.fail([b"Fetch"], "NOT_COORDINATOR"), TypeError, "api=b'Fetch'"),
        (lambda b: b.fail("Fetch", "NOPE"), ValueError, "'NOPE' is not an error"),
        (lambda b: b.fail("Fetch", None), ValueError, "needs an error"),
        (lambda b: b.fail("Fetch", "NONE"), ValueError, "clients would see a success"),
        (lambda b: b.fail("Fetch", 0), ValueError, "clients would see a success"),
        (lambda b: b.fail("Fetch", True), TypeError, "error=True"),
        (lambda b: b.fail("Fetch", 2.5), TypeError, "error=2.5"),
        (lambda b: b.fail("Fetch", 3, times=0), ValueError, "times=0: the minimum is 1"),
        (lambda b: b.fail("Fetch", 3, times=1.5), TypeError, "times=1.5"),
        (lambda b: b.fail("Fetch", 3, skip=-1), ValueError, "skip=-1"),
        (lambda b: b.fail("Fetch", 3, message=b"no"), TypeError, "message=b'no'"),
        (lambda b: b.fail("Fetch", 3, after=True), TypeError, r"fail\(\) has no argument 'after'"),
        (lambda b: b.fail("Fetch", 3, tims=2), TypeError, "tims"),
        (lambda b: b.fail("Fetch", 3, group=5), TypeError, "group=5: must be str or None"),
        (lambda b: b.fail("Fetch", 3, topic="\ud800"), ValueError, "half a surrogate pair"),
        (lambda b: b.fail("Fetch", 3, where=True), TypeError, "where=True: must be a function"),
        (lambda b: b.delay("Fetch", "3"), TypeError, "seconds='3'"),
        (lambda b: b.delay("Fetch", -1), ValueError, "seconds=-1"),
        (lambda b: b.delay("Fetch", float("nan")), ValueError, "seconds=nan"),
        (lambda b: b.delay("Fetch", float("inf")), ValueError, "seconds=inf"),
        (lambda b: b.delay("Fetch", 1, error="NOT_COORDINATOR"), TypeError, r"delay\(\) has no argument 'error'"),
        (lambda b: b.hold("Fetch", seconds=3), TypeError, r"hold\(\) has no argument 'seconds'"),
        (lambda b: b.throttle("Fetch", 1e9), ValueError, "seconds=1000000000.0 seconds: valid are 0 to 2.14748e"),
        (lambda b: b.disconnect(client_id=3), TypeError, "client_id=3"),
        (lambda b: b.disconnect(times=3), TypeError, "takes only client_id, not times"),
        (lambda b: b.inject("Fetch"), TypeError, "a fault='Fetch'"),
        (lambda b: b.script(faults.disconnect("Fetch"), None), TypeError, "a fault=None"),
        (lambda b: b.script(faults.hold("Fetch"), faults.hold("Fetch")), ValueError, "only the last fault"),
        (lambda b: b.random_faults(apis=["Nope"]), ValueError, "'Nope' is not an API"),
        (lambda b: b.clear_faults("Fetch"), TypeError, "fault='Fetch'"),
        (lambda b: b.release(group=3), TypeError, "group=3"),
        (lambda b: b.release(keep_holding="no"), TypeError, "keep_holding='no'"),
        (lambda b: b.refuse_connections(close="no"), TypeError, "close='no'"),
        (lambda b: b.restart(kill="yes"), TypeError, "kill='yes'"),
        (lambda b: b.fence_producer(None), TypeError, "transactional_id=None"),
        (lambda b: b.clock.advance("45"), TypeError, "seconds='45'"),
        (lambda b: b.clock.advance(-1), ValueError, "seconds=-1"),
        (lambda b: b.clock.advance(MAX_SECONDS + 1), ValueError, "valid are 0 to"),
        (lambda b: b.clock.step_wall(float("nan")), ValueError, "seconds=nan"),
        (lambda b: b.clock.step_wall(-1e11), ValueError, "before 1970"),
        (lambda b: b.groups[3], TypeError, "group_id=3"),
        (lambda b: b.history(None), TypeError, "group_id=None"),
        (lambda b: b.history("g").of("rebalanced"), ValueError, "'rebalanced' is not a kind of events; valid: joined"),
        (lambda b: b.groups["g"].rebalance(), LookupError, "group g does not exist"),
        (lambda b: b.groups["g"].expire("m"), LookupError, "group g does not exist"),
        (lambda b: b.groups["g"].member("c"), LookupError, "0 members"),
        (lambda b: b.wait_for(True), TypeError, "condition=True: must be a function"),
        (lambda b: b.wait_for(send_request, timeout=float("nan")), ValueError, "timeout=nan"),
        (lambda b: b.wait_for(send_request, timeout=None), TypeError, "timeout=None"),
        (lambda b: b.wait_for(_coroutine), TypeError, "must be a function"),
        (lambda b: b.assert_committed("g", [("jobs", 0)]), TypeError, "offsets="),
        (lambda b: b.assert_committed("g", {"jobs-0": 1}), TypeError, r"use \(topic, partition\)"),
        (lambda b: b.assert_no_double_processing([5]), TypeError, "neither a record nor a tuple"),
        (lambda b: b.assert_no_double_processing([], "g"), LookupError, r"never had a group 'g', only \[\]"),
        (lambda b: b.assert_nothing_skipped([], "g"), LookupError, r"never had a group 'g', only \[\]"),
        (lambda b: b.disconnect(client_id="c"), LookupError, r"no request of client 'c', only of \[\]"),
    ],
)
def test_a_wrong_argument_changes_nothing(kcore_broker: Broker, act: Act, error: type[Exception], message: str) -> None:
    address = kcore_broker.bootstrap
    with pytest.raises(error, match=message):
        act(kcore_broker)
    assert kcore_broker.active_faults == []
    assert kcore_broker.bootstrap == address
    assert send_request(kcore_broker) == 1


async def _coroutine(broker: Broker) -> bool:
    return True


@pytest.mark.kcore(settings={"auto.create.topics.enable": False})
def test_a_setting_may_be_a_bool(kcore_broker: Broker) -> None:
    assert kcore_broker.node.config.auto_create_topics_enable is False


# ---- functions of a test that fail


@pytest.mark.parametrize(
    ("inject", "message"),
    [
        (lambda b: b.fail("Metadata", 3, where=lambda request: request.nothing), r"'where' .*AttributeError"),
        (lambda b: b.fail("Metadata", lambda request: "NOPE"), r"'error' .*'NOPE' is not an error"),
        (lambda b: b.fail("Metadata", lambda request: b.committed("g")), r"'error' .*ReentrantCallError"),
        (
            lambda b: b.random_faults(
                1, probability=1, apis=["Metadata"], faults=[faults.disconnect("*", where=lambda request: 1 / 0)]
            ),
            "'where' .*division by zero",
        ),
    ],
)
def test_a_function_of_a_fault_that_fails_fails_the_test(inject: Act, message: str) -> None:
    broker = Broker().start()
    inject(broker)
    assert send_request(broker) == 1  # the request passes
    with pytest.raises(KcoreError, match=message):
        broker.wait_for(lambda _: False)
    with pytest.raises(KcoreError, match=message):
        broker.__exit__(None, None, None)


def test_an_error_of_the_test_takes_precedence_over_an_error_of_a_function() -> None:
    broker = Broker().start()
    broker.fail("Metadata", 3, where=lambda request: request.nothing)
    assert send_request(broker) == 1
    assert not broker.__exit__(ZeroDivisionError, ZeroDivisionError(), None), "the error of the test is kept"


def test_a_function_that_returns_no_error_lets_the_request_pass(kcore_broker: Broker) -> None:
    fault = kcore_broker.fail("Metadata", lambda request: 0, times=None)
    assert (send_request(kcore_broker), fault.applied) == (1, 1)


# ---- life


def test_a_failed_start_leaves_nothing_and_can_be_repeated() -> None:
    with pytest.raises(KafkaError), Broker(topics=["no name"]):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = Broker(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            broker.start()
    with broker:
        assert send_request(broker) == 1


def test_a_broker_that_is_forgotten_warns_and_ends() -> None:
    broker = Broker().start()
    address = ("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))
    del broker
    with pytest.warns(ResourceWarning, match="was not stopped"):
        gc.collect()

    def refused() -> bool:
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # the listener was closed before it accepted this connection
            return False
        return False

    assert wait_until(refused, "the broker stops listening")


def test_a_stop_with_held_requests_and_faults_does_not_wait() -> None:
    with Broker(topics=["jobs"]) as broker:
        broker.hold("Produce")
        producer = confluent_producer(broker)
        producer.produce("jobs", b"work")
        broker.wait_for(lambda b: producer.poll(0) == 0 and b.held)
        broker.restart()
        assert broker.held == []
        broker.wait_for(lambda b: b.held)  # the client has repeated the request, and the fault holds it again
        broker.clear_faults()
    assert producer.flush(0) == 1
    producer.purge()


def test_the_broker_cannot_be_stopped_from_its_own_thread(kcore_broker: Broker) -> None:
    for act in (kcore_broker.stop, kcore_broker.restart):
        with pytest.raises(ReentrantCallError):
            kcore_broker.call(lambda _, act=act: act())  # type: ignore[misc]
    assert send_request(kcore_broker) == 1


def test_many_threads_use_a_broker_that_restarts_and_stops() -> None:
    broker = Broker(topics=["jobs"]).start()
    errors: list[BaseException] = []
    end = threading.Event()

    def use() -> None:
        while not end.is_set():
            try:
                broker.connection_count  # noqa: B018
                broker.clock.advance(0.001)
                broker.assert_at_rest()
                broker.clear_faults(broker.hold("Fetch"))
            except (EngineClosedError, KcoreError):
                pass  # it restarts, or was stopped
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        broker.restart(kill=number % 2 == 0)
    stops = [threading.Thread(target=broker.stop) for _ in range(3)]
    for thread in stops:
        thread.start()
    for thread in stops:
        thread.join(20)
    end.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in (*threads, *stops))
    assert errors == []


def test_a_call_that_the_stop_overtakes_gets_an_error() -> None:
    broker = Broker().start()
    results: list[object] = []

    def call() -> None:
        try:
            results.append(broker._driver.run_on_loop(asyncio.Event().wait))
        except EngineClosedError as error:
            results.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    while not broker.call(lambda _: len(asyncio.all_tasks()) > 1):
        pass
    broker.stop()
    thread.join(20)
    assert results == ["the engine was closed during this call"]


def test_connections_that_cannot_be_accepted_again_are_accepted_later(kcore_broker: Broker) -> None:
    kcore_broker.refuse_connections()
    kcore_broker.refuse_connections()
    port = int(kcore_broker.bootstrap.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="in use"):
        kcore_broker.accept_connections()
    kcore_broker.accept_connections()
    kcore_broker.accept_connections()
    assert send_request(kcore_broker) == 1


def test_coordinators_may_be_moved_in_any_order(kcore_broker: Broker) -> None:
    group = kcore_broker.groups["g"]
    group.load_coordinator()
    group.unload_coordinator()
    group.unload_coordinator()
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        _ = group.offsets
    assert group.state == "Dead"
    kcore_broker.assert_at_rest()
    group.move_coordinator()
    assert group.offsets == {}
    group.unload_coordinator()
    kcore_broker.restart()
    assert group.offsets == {}


# ---- coroutines


def test_a_cancelled_start_leaves_no_broker() -> None:
    async def run() -> None:
        broker = Broker()
        entering = asyncio.ensure_future(broker.__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        with pytest.raises(KcoreError, match="does not run"):
            _ = broker.node

    asyncio.run(run())


def test_a_cancelled_wait_ends_at_once(kcore_broker: Broker) -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kcore_broker.wait_for_async(lambda _: False, timeout=300), 0.05)

    asyncio.run(run())  # waits for the threads of the loop, too


def test_a_wait_that_blocks_its_event_loop_says_so(kcore_broker: Broker) -> None:
    kcore_broker.node.topics.create("jobs", partitions=1)

    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kcore_broker.bootstrap) as producer:
            await producer.send("jobs", b"work", partition=0)
            with pytest.raises(AssertionError, match="blocked the event loop: use"):
                kcore_broker.wait_for(lambda b: b.node.topics["jobs"].end_offsets()[0], timeout=0.1)
            await kcore_broker.wait_for_async(lambda b: b.node.topics["jobs"].end_offsets()[0])

    asyncio.run(run())


def test_a_broker_starts_and_stops_in_a_coroutine() -> None:
    async def run() -> int:
        with Broker() as broker:
            broker.restart()
            return await asyncio.to_thread(send_request, broker)

    assert asyncio.run(run()) == 1


# ---- histories and assertions


def test_a_long_history_is_cut_and_says_so(kcore_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_EVENTS", 1_000)

    def record(engine: Any) -> None:
        for number in range(100_000):
            engine.recorder.add("g", "committed", offsets={("jobs", 0): number})

    kcore_broker.call(record)
    history = kcore_broker.history("g")
    assert (len(history) + history.dropped, history[-1].offsets) == (100_000, {("jobs", 0): 99_999})
    assert history.table().startswith(f"history of group g after {history.dropped} earlier events\n")
    with pytest.raises(AssertionError) as raised:
        kcore_broker.wait_for(lambda _: False, timeout=0)
    assert "history of group g after 99800 earlier events" in str(raised.value)
    assert len(str(raised.value).splitlines()) < 220
    assert len(History("g", history).table(last=0).splitlines()) == 2


@pytest.mark.kcore(topics={"jobs": 1})
def test_a_committed_offset_beyond_the_log_is_named_at_once(kcore_broker: Broker) -> None:
    fill(kcore_broker, "jobs", 1)
    kcore_broker.node.group("g").commit({("jobs", 0): 2**62})
    with pytest.raises(AssertionError, match=r"beyond the end of the log: .*the log ends at 1"):
        kcore_broker.assert_nothing_skipped([("jobs", 0, 0)], "g")


@pytest.mark.kcore(topics={"jobs": 1})
def test_markers_and_aborted_records_are_not_skipped(kcore_broker: Broker) -> None:
    for name in ("a", "b"):
        producer = confluent_producer(kcore_broker, transactional_id="t")
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("jobs", name)
        assert producer.flush(20) == 0
        producer.commit_transaction(20) if name == "b" else producer.abort_transaction(20)
    fill(kcore_broker, "jobs", 1)
    kcore_broker.node.group("g").commit({("jobs", 0): 5})
    kcore_broker.assert_nothing_skipped([("jobs", 0, 2), ("jobs", 0, 4)], "g")
    with pytest.raises(AssertionError, match=r"1 record was committed .*: jobs-0@2"):
        kcore_broker.assert_nothing_skipped([("jobs", 0, 4)], "g")


# ---- folders and processes


@pytest.mark.parametrize("content", [None, b"", b"no database", random.Random(1).randbytes(1 << 16)])
def test_a_replay_of_no_data_folder_is_refused(tmp_path: Path, content: bytes | None) -> None:
    with pytest.raises(KcoreError):
        replay(tmp_path / "absent")
    folder = tmp_path / "foreign"
    folder.mkdir()
    if content is not None:
        (folder / "data.mdb").write_bytes(content)
        (folder / "00000000000000000000.log").write_bytes(b"of Apache Kafka")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock.mdb"}
    with pytest.raises(KcoreError):
        replay(folder, at=datetime.now(UTC))
    with pytest.raises(KcoreError):
        replay(folder / "data.mdb")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock.mdb"} == before


def test_a_server_process_that_was_never_started_says_so() -> None:
    server = ServerProcess()
    assert (server.alive, server.stop()) == (False, None)
    for act in (server.kill, lambda: server.pid):
        with pytest.raises(KcoreError, match="was never started"):
            act()


def test_a_server_process_is_started_once_and_ends_when_it_is_forgotten(tmp_path: Path) -> None:
    server = ServerProcess(settings={"group.max.size": 7})
    server.start()
    with pytest.raises(KcoreError, match="runs already, as process"):
        server.start()
    process = server._process
    del server
    gc.collect()
    assert process is not None
    assert process.wait(20) != 0
    with pytest.raises(KcoreError, match=r"ended with status .*no\.such\.setting"):
        ServerProcess(settings={"no.such.setting": 7}).start()


# ---- fixtures


def test_fixtures_work_together_nested_in_parallel_and_after_failures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from unittest.mock import MagicMock, Mock
        from kcore.testing import Broker, VirtualNode

        @pytest.fixture
        def mocked():
            return Mock()

        @pytest.mark.parametrize("number", range(8))
        @pytest.mark.kcore(topics={"jobs": 2})
        def test_all(kcore_broker, kcore_node, number):
            async def scenario(node):
                return len(await node.topics["jobs"].partitions())

            assert kcore_node.run(scenario) == 2
            with Broker() as inner, VirtualNode() as other:
                assert inner.bootstrap != kcore_broker.bootstrap
                assert len(inner.node.topics.list()) == 0
            assert len(kcore_broker.node.topics["jobs"].partitions()) == 2

        def test_fails_beside_a_mock(mocked, kcore_broker):
            kcore_broker.node.group("g").commit({("absent", 0): 1})

        def test_fails_after_its_broker_was_stopped(kcore_broker):
            kcore_broker.groups["g"].move_coordinator()
            kcore_broker.stop()
            kcore_broker.groups["g"].state

        @pytest.mark.kcore({"jobs": 2})
        def test_positional(kcore_broker): ...

        @pytest.mark.kcore(topic={"jobs": 2})
        def test_misspelt(kcore_node): ...
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-n", "2", "-p", "kcore.testing.plugin")
    result.assert_outcomes(passed=8, failed=2, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*groups of kcore_broker*",
            "*the broker does not run*",
            "*the marker kcore takes named arguments*",
            "*the marker kcore has no argument 'topic'; valid: topics, settings",
        ]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


# ---- producers


@pytest.mark.kcore(topics={"jobs": 1})
def test_a_transactional_id_can_be_fenced_repeatedly(kcore_broker: Broker) -> None:
    for _ in range(3):
        producer = confluent_producer(kcore_broker, transactional_id="t")
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("jobs", b"work")
        assert producer.flush(20) == 0
        kcore_broker.fence_producer("t")
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.commit_transaction(20)
        assert raised.value.args[0].fatal()
    kcore_broker.fill_disk()
    with pytest.raises(KcoreError, match="the disk is full"):
        kcore_broker.fence_producer("t")
    kcore_broker.free_disk()
