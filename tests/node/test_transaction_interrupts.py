"""A KeyboardInterrupt at any line of a transaction: the next transaction with the same transactional id succeeds, and
commits only its own records.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kcore
from kcore.errors import KafkaError, KcoreError, ProducerFencedError
from kcore.node._sync import transactional_producer, transactions, turns
from kcore.node.interceptors import ProducerRecord
from kcore.node.types import RecordMetadata
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kcore.testing.server import ServerProcess
from tests.apache.broker import ApacheKafka
from tests.kit import wait_until
from tests.node.conftest import KAFKA, SETTINGS, TARGETS

FILES = frozenset(str(module.__file__) for module in (transactions, transactional_producer, turns))

SAFE_DOWNGRADE = 2


class Interrupts:
    """Raises a KeyboardInterrupt at line number `number` that the program runs in `FILES`.

    Lines with only `try:` or `return self` are not counted, because CPython checks for signals only at calls and jumps.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.location = ""

    @contextmanager
    def during(self) -> Iterator[None]:
        sys.settrace(self._called)
        try:
            yield
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename in FILES else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and _source(frame) not in ("try:", "return self"):
            self.left -= 1
            if not self.left:
                self.location = f"{frame.f_code.co_qualname}: {_source(frame)}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


_LINES = {name: Path(name).read_text().splitlines() for name in FILES}


def _source(frame: FrameType) -> str:
    return _LINES[frame.f_code.co_filename][frame.f_lineno - 1].strip()


def committed(node: kcore.Node, name: str) -> None:
    with node.transaction(name) as txn:
        txn.append(name, "one", partition=0)
        txn.flush()
        txn.append(name, "one", partition=1)


def failed(node: kcore.Node, name: str) -> None:
    with suppress(ZeroDivisionError), node.transaction(name) as txn:
        txn.append(name, "one", partition=0)
        txn.flush()
        txn.append(name, "one", partition=1)
        raise ZeroDivisionError


@contextmanager
def interrupted_exit() -> Iterator[None]:
    """Raises a KeyboardInterrupt before the first statement of the next `Transaction.__exit__`."""

    def called(frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_qualname == "Transaction.__exit__":
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(called)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sys.settrace(None)


def use_version_1(node: kcore.Node) -> None:
    """Makes a cluster use version 1 of the transaction protocol, as all clusters before Kafka 4.0 do."""
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=SAFE_DOWNGRADE)
    assert not node.send(UpdateFeaturesRequest(feature_updates=[update])).error_code


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("block", [committed, failed])
def test_an_interrupted_transaction_is_not_continued_by_the_next_one(block: Any, version: int) -> None:
    number = 0
    with kcore.open(config=SETTINGS) as node:
        if version == 1:
            use_version_1(node)
        while True:
            number += 1
            name = f"{block.__name__}-{number}"
            topic = node.topics.create(name, 2)
            interrupts = Interrupts(number)
            with interrupts.during():
                block(node, name)
            producer = node._producers.get(name)
            assert producer is None or not producer.turns._queue, interrupts.location
            with node.transaction(name) as txn:
                txn.append(name, "two", partition=0)
            values = [[record.value for record in topic.read(partition, 0)] for partition in (0, 1)]
            assert values in ([[b"two"], []], [[b"one", b"two"], [b"one"]]), interrupts.location
            if not interrupts.location:
                break
    assert number > 100


@pytest.fixture(params=TARGETS)
def version_1(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[kcore.Node]:
    """Yields a node of a separate cluster that uses version 1 of transactions."""
    with ExitStack() as stack:
        if request.param == "embedded":
            node: kcore.Node = stack.enter_context(kcore.open(config=SETTINGS))
            use_version_1(node)
        elif request.param == "kafka" and KAFKA != "start":
            pytest.skip("the features of the broker of KCORE_TEST_KAFKA stay as they are")
        else:
            server = ServerProcess(settings=SETTINGS) if request.param == "serve" else ApacheKafka(tmp_path)
            bootstrap = stack.enter_context(server).bootstrap
            with kcore.connect(bootstrap, wait=60.0) as administrator:
                use_version_1(administrator)
            node = stack.enter_context(kcore.connect(bootstrap))
            wait_until(lambda: node._calls.transport.feature("transaction.version") == 1, "the version")
        yield node


def test_an_interrupted_transaction_of_version_1_is_aborted_by_the_next_one(version_1: kcore.Node) -> None:
    """With version 1 of transactions, the next transaction first aborts the interrupted one by EndTxn. The coordinator
    could also abort it with a new epoch, but would then fence the node's producer.
    """
    topic = version_1.topics.create("t", 1)
    with interrupted_exit(), version_1.transaction("x") as abandoned:
        abandoned.append("t", "one")
        abandoned.flush()
    with version_1.transaction("x") as txn:
        txn.append("t", "two")
    assert version_1._producers["x"].implicit is False
    wait_until(lambda: [record.value for record in topic.read(0, 0)] == [b"two"], "the record")


class Interrupting:
    """Makes the next InitProducerId of a node raise a KeyboardInterrupt.

    Args:
        node: the node.
        arrives: True if the request reaches the coordinator and only its response is lost. False if the request is
            delayed until the test delivers it.
    """

    def __init__(self, node: kcore.Node, arrives: bool) -> None:
        self._transport: Any = node._calls.transport
        self._send = self._transport.send
        self._arrives = arrives
        self._delayed: Any = None

    def __enter__(self) -> Interrupting:
        self._transport.send = self._interrupt
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.send = self._send

    def _interrupt(self, request: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(request, InitProducerIdRequest):
            return self._send(request, *args, **options)
        if not self._arrives:
            self._delayed = request, options
        elif self._send(request, *args, **options).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            raise KafkaError.of(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise KeyboardInterrupt

    def arrive(self) -> None:
        """Delivers the delayed request."""
        request, options = self._delayed
        assert not self._send(request, **options).error_code


@pytest.mark.parametrize("before", ["new", "idle", "open"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_response_to_a_request_for_an_epoch_may_be_lost(
    node: kcore.Node, name: str, before: str, times: int
) -> None:
    topic = node.topics.create(name, 1)
    if before == "idle":
        with node.transaction(name):
            pass
        node._producers[name].invalidate()
    elif before == "open":
        with interrupted_exit(), node.transaction(name) as txn:
            txn.append(name, "one")
            txn.flush()
    for _ in range(times):
        with Interrupting(node, arrives=True), pytest.raises(KeyboardInterrupt), node.transaction(name):
            pass
    with node.transaction(name) as txn:
        txn.append(name, "two")
    wait_until(lambda: [record.value for record in topic.read(0, 0)] == [b"two"], "the record")


@pytest.mark.parametrize("arrival", ["before the commit", "between two transactions"])
def test_a_request_for_an_epoch_that_arrives_late_does_not_fence_its_producer_for_good(
    node: kcore.Node, name: str, arrival: str
) -> None:
    topic = node.topics.create(name, 1)
    with Interrupting(node, arrives=False) as interrupting, pytest.raises(KeyboardInterrupt), node.transaction(name):
        pass
    if arrival == "before the commit":

        def fence() -> None:
            with node.transaction(name) as txn:
                txn.append(name, "one")
                interrupting.arrive()
                txn.commit_offsets(name, {(name, 0): 1})

        with pytest.raises(ProducerFencedError):
            fence()
    else:
        node.transaction(name).init()
        interrupting.arrive()
        node._producers[name].invalidate()
    with node.transaction(name) as txn:
        txn.append(name, "two")
    wait_until(lambda: [record.value for record in topic.read(0, 0)] == [b"two"], "the record")


def test_another_producer_fences_an_interrupted_one_for_good(bootstrap: str, name: str) -> None:
    with kcore.connect(bootstrap) as node, kcore.connect(bootstrap) as other:
        node.topics.create(name, 1)
        with interrupted_exit(), node.transaction(name) as txn:
            txn.append(name, "one")
            txn.flush()
        for _ in range(2):  # after two epochs, the first producer's request is not a repeated one
            other.transaction(name).init()
            other._producers[name].invalidate()
        for _ in range(2):
            with pytest.raises(ProducerFencedError), node.transaction(name):
                pass
        with other.transaction(name):
            pass


class Ending:
    """An interceptor that ends the program at the first record that is not stored."""

    def __init__(self) -> None:
        self.ended = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is not None and not self.ended:
            self.ended = True
            raise SystemExit


def test_the_next_transaction_leaves_out_records_whose_abort_was_interrupted() -> None:
    with kcore.open(config=SETTINGS) as node:
        topic = node.topics.create("t", 1)
        ending = Ending()
        with suppress(SystemExit), node.transaction("x", interceptors=[ending]) as txn:
            txn.append("t", "stored")
            txn.flush()
            txn.append("t", "buffered")
            raise ZeroDivisionError
        assert ending.ended
        with node.transaction("x") as txn:
            txn.append("t", "next")
        assert [record.value for record in topic.read(0, 0)] == [b"next"]


@pytest.mark.parametrize("flushed", [True, False])
def test_a_transaction_whose_exit_did_not_begin_is_aborted_by_the_next_one(
    node: kcore.Node, name: str, flushed: bool
) -> None:
    topic = node.topics.create(name, 1)
    with interrupted_exit(), node.transaction(name) as abandoned:
        abandoned.append(name, "one")
        if flushed:
            abandoned.flush()
    for operation in (abandoned.commit, abandoned.abort, abandoned.flush, lambda: abandoned.append(name, "late")):
        with pytest.raises(KcoreError, match=r"^the transaction is not open"):
            operation()
    with node.transaction(name) as following:
        following.append(name, "two")
        with pytest.raises(KcoreError, match=r"^the transaction is not open"):
            abandoned.commit()
    with abandoned:
        abandoned.append(name, "three")
    # Kafka's coordinator writes the marker after it has acknowledged the commit.
    wait_until(lambda: [record.value for record in topic.read(0, 0)] == [b"two", b"three"], "the records")


def test_an_interrupted_exit_lets_a_waiting_thread_begin() -> None:
    with kcore.open(config=SETTINGS) as node:
        topic = node.topics.create("t", 1)
        began = threading.Event()

        def wait() -> None:
            with node.transaction("x") as txn:
                began.set()
                txn.append("t", "two")

        thread = threading.Thread(target=wait)
        with interrupted_exit(), node.transaction("x") as abandoned:
            abandoned.append("t", "one")
            abandoned.flush()
            thread.start()
            assert not began.is_set()
        thread.join()
        assert [record.value for record in topic.read(0, 0)] == [b"two"]


def test_a_transaction_may_be_entered_without_a_with_statement() -> None:
    with kcore.open(config=SETTINGS) as node:
        topic = node.topics.create("t", 1)
        with ExitStack() as stack:
            txn = stack.enter_context(node.transaction("x"))
            txn.append("t", "one")
            assert topic.read(0, 0) == []
        txn = node.transaction("x")
        assert txn.__enter__() is txn
        txn.append("t", "two")
        with pytest.raises(KcoreError, match="already has an open transaction"), node.transaction("x"):
            pass
        txn.__exit__(None, None, None)
        with node.transaction("x") as txn:
            assert callable(txn.__exit__), "a look-up of `__exit__` in the block does not end the transaction"
            txn.append("t", "three")
        assert [record.value for record in topic.read(0, 0)] == [b"one", b"two", b"three"]


def test_a_transaction_within_one_of_the_same_id_is_an_error() -> None:
    with kcore.open(config=SETTINGS) as node, node.transaction("x"):
        with pytest.raises(KcoreError, match="already has an open transaction"), node.transaction("x"):
            pass
        with pytest.raises(KcoreError, match="already has an open transaction"):
            node.transaction("x").init()
