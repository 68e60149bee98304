"""Transactions and background commits: responses to requests that arrive while a coordinator's decision is written."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.runtime import Pending
from kcore.runtime.commit import BackgroundCommit
from tests.transaction.world import NONE, Identity, World, end_request, produce_request

INIT = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
VERSIONS = {"produce, verified": 11, "produce, added": 12, "offsets, verified": 3, "offsets, added": 5}


def offsets_request(who: Identity, offset: int = 7) -> TxnOffsetCommitRequest:
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="g",
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )


def write_of(case: str, who: Identity) -> Any:
    return produce_request("id", who, 0) if case.startswith("produce") else offsets_request(who)


def code_of(response: Any) -> ErrorCode:
    """Returns the error code of the only partition in a response to Produce or TxnOffsetCommit."""
    if isinstance(response, Pending):
        assert response.done
        response = response.response
    if hasattr(response, "topics"):
        return ErrorCode(response.topics[0].partitions[0].error_code)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def begin_write(world: World) -> BackgroundCommit:
    """Begins the background commit of the open round. The test itself then writes it, without a thread."""
    background = world.engine.pipeline.start_background(threading.Lock())
    assert background is not None, "the round must be committed inline"
    return background


def end_write(world: World, background: BackgroundCommit) -> bool:
    background.write()
    return world.engine.pipeline.finish_background(background)


FENCED = {
    "produce, verified": ErrorCode.INVALID_PRODUCER_EPOCH,
    "produce, added": ErrorCode.INVALID_PRODUCER_EPOCH,
    "offsets, verified": ErrorCode.INVALID_PRODUCER_EPOCH,
    "offsets, added": ErrorCode.INVALID_PRODUCER_EPOCH,
}
AWAY = {
    "produce, verified": ErrorCode.NOT_ENOUGH_REPLICAS,
    "produce, added": ErrorCode.NOT_ENOUGH_REPLICAS,
    "offsets, verified": ErrorCode.NOT_COORDINATOR,
    "offsets, added": ErrorCode.NOT_COORDINATOR,
}


@pytest.mark.parametrize("case", list(VERSIONS))
@pytest.mark.parametrize("when", ["open round", "background commit"])
def test_no_write_is_refused_because_of_an_epoch_that_is_not_durable(case: str, when: str) -> None:
    """A new instance of a producer gets a new epoch, and the old instance writes before this epoch is durable.

    The old instance gets the refusal only once the epoch is durable.
    """
    world = World()
    old = world.begin("id")
    fencing = world.start(INIT, 5)
    background = begin_write(world) if when == "background commit" else None
    refused = world.start(write_of(case, old), VERSIONS[case])
    assert isinstance(refused, Pending)
    assert not refused.done
    if background is not None:
        assert end_write(world, background)
    world.settle()
    assert (fencing.response.error_code, code_of(refused)) == (NONE, FENCED[case])


@pytest.mark.parametrize("case", list(VERSIONS))
@pytest.mark.parametrize("when", ["open round", "background commit"])
def test_a_producer_continues_after_the_commit_of_its_successor_has_failed(case: str, when: str) -> None:
    """The commit of a new instance's epoch fails, after the old instance was refused but before it got the response.

    The old instance then gets a retriable error, and its epoch stays valid.
    """
    world = World()
    old = world.begin("id")
    assert world.add("id", old, [("t", 0)]) == [NONE]
    assert world.add_offsets("id", old, "g") is NONE
    assert world.end("id", old, True)[0] is NONE
    fencing = world.start(INIT, 5)
    background = begin_write(world) if when == "background commit" else None
    refused = world.start(write_of(case, old), VERSIONS[case])
    world.log.failures_left = 1
    if background is not None:
        assert not end_write(world, background)
    world.settle()
    assert fencing.response.error_code == ErrorCode.NOT_COORDINATOR
    assert code_of(refused) is AWAY[case]
    world.engine.turn()
    if not case.endswith("added"):
        assert world.add("id", old, [("t", 0)]) == [NONE]
        assert world.add_offsets("id", old, "g") is NONE
    assert code_of(world.received(world.start(write_of(case, old), VERSIONS[case]), VERSIONS[case])) is NONE


class Rounds:
    """A driver that commits rounds in the background where the pipeline permits it. Round number `failing` fails.

    Attributes:
        count: the number of rounds that were committed in the background.
    """

    def __init__(self, world: World, failing: int) -> None:
        self.count = 0
        self._world = world
        self._failing = failing

    def commit(self) -> None:
        pipeline = self._world.engine.pipeline
        background = pipeline.start_background(threading.Lock())
        if background is not None:
            self._world.log.failures_left = int(self.count == self._failing)
            self.count += 1
            end_write(self._world, background)
        self._world.settle()

    def until_done(self, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        """Repeats a request until it succeeds. Each attempt is a separate round."""
        for _ in range(10):
            response = self._world.start(request, version)
            self.commit()
            if isinstance(response, Pending):
                response = response.response
            if code(response) == NONE:
                return response
            self._world.advance(1_000)
        raise AssertionError("the request does not succeed")


def error_of(response: Any) -> int:
    return int(response.error_code)


@pytest.mark.parametrize("failing", range(-1, 4))
def test_every_write_of_a_transaction_in_the_background_may_fail_once(failing: int) -> None:
    """The client repeats each failed request. The result is the same as without failures."""
    world = World()
    world.begin("other")  # takes a block of producer ids, which is written inline
    rounds = Rounds(world, failing)
    begun = rounds.until_done(INIT, 5, error_of)
    who = Identity(begun.producer_id, begun.producer_epoch)
    rounds.until_done(produce_request("id", who, 0, b"value"), 12, code_of)
    rounds.until_done(offsets_request(who), 5, code_of)
    assert (world.committed(), world.offset("g", stable=False)) == ([], (NONE, -1))
    rounds.until_done(end_request("id", who, True), 5, error_of)
    assert rounds.count == 4 + (failing >= 0)
    found = (world.committed(), world.offset("g"), world.state("id"))
    assert found == ([b"value"], (NONE, 7), "CompleteCommit")
    world.restart()
    assert (world.committed(), world.offset("g"), world.state("id")) == found


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_transaction_is_shown_after_its_background_commit(fails: bool) -> None:
    """While the end of a transaction is written, its records are invisible, and further requests of its producer wait.

    The waiting requests get their responses after the commit has succeeded or failed.
    """
    world = World()
    who = world.begin("id")
    assert world.produce("id", who, 0, b"value", version=12) == (NONE, 0)
    assert code_of(world.received(world.start(offsets_request(who), 5), 5)) is NONE
    ended = world.start(end_request("id", who, True), 5)
    background = begin_write(world)
    stable = world.end_offsets()
    again = world.start(end_request("id", who, True), 5)  # a client that has lost its connection
    late = world.start(produce_request("id", who, 1, b"late"), 12)
    assert not any(response.done for response in (ended, again, late))
    world.log.failures_left = int(fails)
    assert end_write(world, background) is not fails
    world.settle()
    world.engine.turn()
    world.settle()
    assert stable == (0, 1)
    if fails:
        assert ended.response.error_code == ErrorCode.NOT_COORDINATOR
        assert (world.state("id"), world.committed(), world.end_offsets()) == ("Ongoing", [], (0, 1))
        assert world.end("id", who, True, version=5)[0] is NONE
    else:
        assert (ended.response.error_code, again.response.error_code) == (NONE, NONE)
    assert code_of(late) is not NONE
    assert (world.committed(), world.offset("g"), world.state("id")) == ([b"value"], (NONE, 7), "CompleteCommit")


class RaisesAtLine:
    """A trace function that raises an exception at the n-th line event in the files of the transaction coordinator."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.left = number
        self.error: BaseException | None = error

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if "kcore/transaction/" not in frame.f_code.co_filename:
            return None
        if event == "line" and self.error is not None:
            self.left -= 1
            if self.left < 0:
                error, self.error = self.error, None
                raise error
        return self


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("case", list(VERSIONS))
def test_a_refusal_that_an_exception_interrupts_changes_nothing(case: str, error: type[BaseException]) -> None:
    """An old producer writes while the commit of the epoch that fences it is running.

    An exception interrupts the check of this write. The loop repeats the test for each line of the check. In no case
    is a record written.
    """
    number, raised = 0, 0
    while True:
        world = World()
        old = world.begin("id")
        fencing = world.start(INIT, 5)
        background = begin_write(world)
        trace = RaisesAtLine(number, error())
        before = sys.gettrace()
        response = None
        try:
            sys.settrace(trace)
            response = world.start(write_of(case, old), VERSIONS[case])
        except KeyboardInterrupt:
            raised += 1
        finally:
            sys.settrace(before)
        assert end_write(world, background)
        world.settle()
        assert fencing.response.error_code == NONE
        if response is not None:
            assert code_of(response) is not NONE
        after = world.received(world.start(write_of(case, old), VERSIONS[case]), VERSIONS[case])
        assert code_of(after) is FENCED[case]
        assert (world.committed(), world.offset("g")) == ([], (NONE, -1))
        if trace.error is not None:
            break
        number += 1
    assert number > 5
    assert raised == (number if error is KeyboardInterrupt else 0)
