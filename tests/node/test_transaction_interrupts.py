"""A KeyboardInterrupt at any line of a transaction: the next transaction of the id begins, and commits its records
alone."""

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
from kcore.errors import KcoreError
from kcore.node._sync import transactional_producer, transactions, turns
from kcore.node.interceptors import ProducerRecord
from kcore.node.types import RecordMetadata
from tests.node.conftest import SETTINGS

FILES = frozenset(str(module.__file__) for module in (transactions, transactional_producer, turns))


class Interrupts:
    """Raises a KeyboardInterrupt at line `number` that runs in `FILES`. CPython itself checks for signals only at calls
    and jumps, so lines with a lone `try:` or `return self` do not count.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.place = ""

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
                self.place = f"{frame.f_code.co_qualname}: {_source(frame)}"
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


@pytest.mark.parametrize("block", [committed, failed])
def test_an_interrupted_transaction_is_not_continued_by_the_next_one(block: Any) -> None:
    number = 0
    with kcore.open(config=SETTINGS) as node:
        while True:
            number += 1
            name = f"{block.__name__}-{number}"
            topic = node.topics.create(name, 2)
            interrupts = Interrupts(number)
            with interrupts.during():
                block(node, name)
            producer = node._producers.get(name)
            assert producer is None or not producer.turns._queue, interrupts.place
            with node.transaction(name) as txn:
                txn.append(name, "two", partition=0)
            values = [[record.value for record in topic.read(partition, 0)] for partition in (0, 1)]
            assert values in ([[b"two"], []], [[b"one", b"two"], [b"one"]]), interrupts.place
            if not interrupts.place:
                break
    assert number > 100


class Ending:
    """An interceptor that ends the program at the first record that was not stored."""

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
    assert [record.value for record in topic.read(0, 0, wait=10.0)][:2] == [b"two", b"three"]


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
        with pytest.raises(KcoreError, match="is open in this block"), node.transaction("x"):
            pass
        txn.__exit__(None, None, None)
        with node.transaction("x") as txn:
            assert callable(txn.__exit__), "a look-up in the block does not end it"
            txn.append("t", "three")
        assert [record.value for record in topic.read(0, 0)] == [b"one", b"two", b"three"]


def test_a_transaction_within_one_of_the_same_id_is_an_error() -> None:
    with kcore.open(config=SETTINGS) as node, node.transaction("x"):
        with pytest.raises(KcoreError, match="is open in this block"), node.transaction("x"):
            pass
        with pytest.raises(KcoreError, match="is open in this block"):
            node.transaction("x").init()
