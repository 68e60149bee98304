"""A program in which a request of share groups fails at each allocation or before each line in turn.

    python -m tests.faults.share_faults STEP memory|lines|interrupt [SPAN]

After each fault a new member must get every unacknowledged record, and no acknowledged record. Prints the number of
faults, and how often the node had to be opened again. The program runs in its own process, because a defect of compiled
code may crash the process.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kcore.errors import EngineInterruptedError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteStateData
from kcore.protocol.messages.delete_share_group_state import PartitionData as DeletePartition
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from kcore.protocol.messages.initialize_share_group_state import PartitionData as InitialState
from kcore.protocol.messages.read_share_group_state import PartitionData as ReadPartition
from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from kcore.protocol.messages.read_share_group_state_summary import PartitionData as SummaryPartition
from kcore.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from kcore.protocol.messages.write_share_group_state import PartitionData as WritePartition
from kcore.protocol.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kcore.runtime import Pending, RequestContext
from tests.broker.share.world import World, acquired
from tests.faults.log_model import at_line

QUIET = 100
"""Number of consecutive runs in which the step does not fail. The program then ends, because these faults come after
the step. Faults in a write of states do not fail the step either; a write executes fewer lines than this number.
"""

PARTITIONS = 2
RECORDS = 3
OTHER = 2
"""Number of a partition that no member fetches. The steps that test the share coordinator's APIs change its state."""

ACCEPT, RELEASE = 1, 2


class Failure(Exception):  # noqa: N818
    """An error code in a response."""


class Subject:
    """A node, and the records of its share group whose acknowledgement was confirmed.

    Attributes:
        reopened: the number of times that the node was opened again.
    """

    def __init__(self) -> None:
        self.world = World({"share.coordinator.snapshot.update.records.per.snapshot": 5}, partitions=PARTITIONS + 1)
        self.done: set[tuple[int, int]] = set()
        self.end = 0
        self.members = 0
        self.reopened = 0
        self.epoch = 0
        self.stored = 0
        self.generic = False

    # ---- steps

    def begin(self) -> str:
        """Appends records, and makes a new member acquire them. Stores the epoch of the member's next request. Returns
        the member id.
        """
        for partition in range(PARTITIONS):
            self.world.produce(RECORDS, partition=partition)
        self.end += RECORDS
        self.members += 1
        member = f"m{self.members}"
        self.world.engine.apis[ApiKey.SHARE_FETCH].fast = (  # type: ignore[misc]
            None if self.generic else self.world.engine.apis[ApiKey.SHARE_FETCH].fast_path.serve  # type: ignore[attr-defined]
        )
        got = acquired(self.world.fetch(member, 0, range(PARTITIONS)))
        if not got:
            got = acquired(self.world.fetch(member, 1))
            self.epoch = 2
        else:
            self.epoch = 1
        assert got == [(self.end - RECORDS, self.end - 1, 1)] * PARTITIONS, got
        return member

    def acks(self) -> dict[int, list[tuple[int, ...]]]:
        first = self.end - RECORDS
        return {0: [(first, first, ACCEPT), (first + 1, first + 2, RELEASE)], 1: [(first, first + 1, ACCEPT)]}

    def noted(self, codes: dict[int, int]) -> None:
        """Records the confirmed acknowledgements."""
        first = self.end - RECORDS
        if codes.get(0) == 0:
            self.done.add((0, first))
        if codes.get(1) == 0:
            self.done |= {(1, first), (1, first + 1)}

    def fetch(self, member: str) -> None:
        """Sends ShareFetch with acknowledgements. Acquires again the records that these acknowledgements release."""
        request = self.world.fetch_request(member, self.epoch, self.acks())
        self.epoch += 1
        response = self.complete(self.world.engine.submit(self.context(2), request))
        if response.error_code:
            raise Failure(response.error_code)
        self.noted(
            {
                partition.partition_index: partition.acknowledge_error_code
                for topic in response.responses
                for partition in topic.partitions
            }
        )

    def acknowledge(self, member: str) -> None:
        """Sends ShareAcknowledge."""
        request = self.world.acknowledge_request(member, self.epoch, self.acks())
        self.epoch += 1
        response = self.complete(self.world.engine.submit(self.context(2), request))
        if response.error_code:
            raise Failure(response.error_code)
        self.noted(
            {
                partition.partition_index: partition.error_code
                for topic in response.responses
                for partition in topic.partitions
            }
        )

    def state(self, request: Any) -> None:
        """Sends a request to one of the share coordinator's APIs."""
        response = self.complete(self.world.engine.submit(self.context(0), request))
        code = response.results[0].partitions[0].error_code
        if code:
            raise Failure(code)

    def initialize(self, member: str) -> None:
        data = InitialState(partition=OTHER, state_epoch=1, start_offset=0)
        topics = [InitializeStateData(topic_id=self.world.topic_id(), partitions=[data])]
        self.state(InitializeShareGroupStateRequest(group_id="g", topics=topics))

    def read(self, member: str) -> None:
        topics = [ReadStateData(topic_id=self.world.topic_id(), partitions=[ReadPartition(partition=OTHER)])]
        self.state(ReadShareGroupStateRequest(group_id="g", topics=topics))

    def write(self, member: str) -> None:
        batch = StateBatch(first_offset=self.end, last_offset=self.end, delivery_state=2, delivery_count=1)
        data = WritePartition(
            partition=OTHER, state_epoch=1, leader_epoch=-1, start_offset=self.end, state_batches=[batch]
        )
        topics = [WriteStateData(topic_id=self.world.topic_id(), partitions=[data])]
        self.state(WriteShareGroupStateRequest(group_id="g", topics=topics))
        self.stored = self.end

    def delete(self, member: str) -> None:
        topics = [DeleteStateData(topic_id=self.world.topic_id(), partitions=[DeletePartition(partition=OTHER)])]
        self.state(DeleteShareGroupStateRequest(group_id="g", topics=topics))

    def summary(self, member: str) -> None:
        data = SummaryPartition(partition=OTHER)
        topics = [ReadStateSummaryData(topic_id=self.world.topic_id(), partitions=[data])]
        self.state(ReadShareGroupStateSummaryRequest(group_id="g", topics=topics))

    def expire(self, member: str) -> None:
        """Ends the locks of all acquired records."""
        self.world.advance(30_000)
        self.world.settle()

    # ---- the node

    def context(self, version: int) -> Any:
        return RequestContext(version, "test", connection_id=1)

    def complete(self, response: Any) -> Any:
        """Commits until a response is complete."""
        self.world.settle()
        for _ in range(3):
            if not isinstance(response, Pending) or response.done:
                break
            self.world.advance(100)  # a retry
            self.world.settle()
        if isinstance(response, Pending):
            assert response.done, f"no response to {response.request}"
            response = response.response
        return response

    def run(self, action: Callable[[str], None], member: str, fault: Callable[[], AbstractContextManager[Any]]) -> bool:
        """Runs a step with a fault; returns True if the step failed. Keeps no reference to the exception."""
        try:
            with fault():
                action(member)
        except (MemoryError, Failure, EngineInterruptedError, KeyboardInterrupt, Injected) as error:
            if not isinstance(error, Failure) and not isinstance(error, Exception):
                self.reopen()  # the driver refuses every call after this fault
            return True
        return False

    def reopen(self) -> None:
        self.reopened += 1
        self.world.log.rollback()
        self.world.restart()

    def check(self, member: str) -> None:
        """Checks that a new member gets every record that is not acknowledged exactly once, and no other record."""
        if self.world.engine.pipeline.interrupted:
            self.reopen()
        self.world.fetch(member, -1)
        self.world.fetch("checker", -1)
        self.world.advance(30_000)  # locks of sessions that a restart has lost
        delivered: list[tuple[int, int]] = []
        epoch = 0
        for _ in range(12):
            response = self.world.fetch("checker", epoch, range(PARTITIONS) if not epoch else ())
            assert not response.error_code, response
            epoch += 1
            for topic in response.responses:
                for partition in topic.partitions:
                    assert not partition.error_code, response
                    for each in partition.acquired_records:
                        delivered += [
                            (partition.partition_index, offset)
                            for offset in range(each.first_offset, each.last_offset + 1)
                        ]
            self.world.advance(200)
        new = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.end - RECORDS, self.end)}
        assert len(delivered) == len(set(delivered)), f"delivered twice: {delivered}"
        assert not self.done & set(delivered), f"acknowledged, and delivered again: {self.done & set(delivered)}"
        first = self.end - RECORDS
        uncertain = {(0, first), (1, first), (1, first + 1)} - self.done
        lost = new - self.done - uncertain - set(delivered)
        states = [(each.snapshot(), each.state, each.interrupted) for each in self.world.engine.share_partitions]
        assert not lost, f"lost: {lost}; {states}"
        request = self.world.acknowledge_request(
            "checker",
            epoch,
            {
                index: [(offset, offset, ACCEPT) for partition, offset in sorted(delivered) if partition == index]
                for index in {partition for partition, _ in delivered}
            },
        )
        response = self.world.call(request, 2)
        codes = [each.error_code for topic in response.responses for each in topic.partitions]
        assert (response.error_code, set(codes) <= {0}) == (0, True), response
        self.done |= new
        for index in range(PARTITIONS):
            assert self.world.share_partition(index).start_offset == self.end, self.world.share_partition(index)
        assert len(self.world.engine.purgatory) == 0
        if self.stored:
            self.check_stored()

    def check_stored(self) -> None:
        """Checks that the last confirmed write to the state of partition `OTHER` is stored."""
        topics = [ReadStateData(topic_id=self.world.topic_id(), partitions=[ReadPartition(partition=OTHER)])]
        result = self.world.call(ReadShareGroupStateRequest(group_id="g", topics=topics), 0).results[0].partitions[0]
        assert result.start_offset >= self.stored, result


class Injected(Exception):  # noqa: N818
    """The exception that is injected before a line."""


class Memory:
    """Makes `span` allocations fail, from number `nth` on."""

    def __init__(self, nth: int, span: int) -> None:
        self.nth, self.span = nth, span

    def __enter__(self) -> None:
        import _testcapi  # type: ignore[import-not-found]

        self.hooks = _testcapi
        _testcapi.set_nomemory(self.nth, self.nth + self.span)

    def __exit__(self, *_: object) -> None:
        self.hooks.remove_mem_hooks()


def main(step: str, kind: str, span: str = "1") -> None:
    faulthandler.dump_traceback_later(150, exit=True)  # it takes a few seconds, unless a lock is never released
    logging.disable(logging.CRITICAL)
    subject = Subject()
    subject.generic = step == "generic"
    action = getattr(subject, "fetch" if step == "generic" else step)
    for _ in range(3):  # imports, and caches
        member = subject.begin()
        action(member)
        subject.check(member)
    faults_by_kind: dict[str, Callable[[int], AbstractContextManager[Any]]] = {
        "memory": lambda nth: Memory(nth, int(span)),
        "lines": lambda nth: at_line(nth + 1, Injected()),
        "interrupt": lambda nth: at_line(nth + 1, KeyboardInterrupt()),
    }
    nth = quiet = faults = 0
    while quiet < QUIET:
        member = subject.begin()
        failed = subject.run(action, member, lambda nth=nth: faults_by_kind[kind](nth))  # type: ignore[misc]
        try:
            subject.check(member)
        except BaseException as error:
            error.add_note(f"after {kind} {nth} of {step}")
            raise
        quiet = 0 if failed else quiet + 1
        faults += failed
        nth += 1
    print(f"{faults} faults, {subject.reopened} times opened again")


if __name__ == "__main__":
    main(*sys.argv[1:])
