"""Sequences, epochs, duplicates and transactions of producers, compared with an independent model."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kcore.broker.data.producer_state import MAX_SEQUENCE, BatchMetadata, ProducerStates, increment_sequence
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.data.context import DataPlane, batch_of


@pytest.mark.parametrize(
    ("sequence", "by", "expected"),
    [
        (0, 0, 0),
        (0, 4, 4),
        (MAX_SEQUENCE, 0, MAX_SEQUENCE),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE - 2, 5, 2),
        (MAX_SEQUENCE - 1, 1, MAX_SEQUENCE),
    ],
)
def test_sequences_wrap_from_the_largest_to_zero(sequence: int, by: int, expected: int) -> None:
    assert increment_sequence(sequence, by) == expected


@dataclass
class Written:
    """A batch in the model's log."""

    offset: int
    count: int
    producer_id: int
    epoch: int
    sequences: list[int]
    transactional: bool
    marker: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.count


@dataclass
class Model:
    """Model that stores only the log of a partition, and computes every result from the beginning of the log."""

    log: list[Written] = field(default_factory=list)
    committed: int = 0

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def of(self, producer_id: int) -> list[Written]:
        return [batch for batch in self.log if batch.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        own = self.of(producer_id)
        return own[-1].epoch if own else -1

    def cached(self, producer_id: int) -> list[Written]:
        """Returns the last five batches since the last change of the epoch. A marker of the same epoch removes none of
        them.
        """
        found: list[Written] = []
        for batch in reversed(self.of(producer_id)):
            if batch.epoch != self.epoch(producer_id):
                break
            if not batch.marker:
                found.insert(0, batch)
        return found[-5:]

    def open(self, log: list[Written] | None = None) -> dict[int, int]:
        found: dict[int, int] = {}
        for batch in self.log if log is None else log:
            if batch.marker:
                found.pop(batch.producer_id, None)
            elif batch.transactional and batch.producer_id not in found:
                found[batch.producer_id] = batch.offset
        return found

    def verdict(
        self, producer_id: int, epoch: int, sequences: list[int], transactional: bool
    ) -> int | ErrorCode | None:
        """Returns None if the batch may be appended, the offset of the original for a duplicate, or the error."""
        for batch in self.cached(producer_id):
            if epoch == batch.epoch and (sequences[0], sequences[-1]) == (batch.sequences[0], batch.sequences[-1]):
                return batch.offset
        known = self.epoch(producer_id)
        if known == -1:
            return None
        if epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        cached = self.cached(producer_id)
        following = (cached[-1].sequences[-1] + 1) % 2**31 if cached and epoch == known else 0
        if sequences[0] != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer_id in self.open() and not transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def stable(self) -> int:
        """Returns the start of the first transaction that was open at the committed end of the log."""
        durable = [batch for batch in self.log if batch.end <= self.committed]
        return min([self.committed, *self.open(durable).values()])

    def aborted(self) -> list[tuple[int, int, int, int]]:
        found = []
        for index, batch in enumerate(self.log):
            if batch.marker == "abort":
                before = self.open(self.log[:index])
                first = before.pop(batch.producer_id, None)
                if first is not None:
                    found.append((batch.producer_id, first, batch.offset, min([batch.offset + 1, *before.values()])))
        return found


class PartitionMachine(RuleBasedStateMachine):
    """Appends, markers, commits, failures and restarts, on a real partition and on a model."""

    @initialize(start=st.sampled_from([0, MAX_SEQUENCE - 6]))
    def begin(self, start: int) -> None:
        self.plane = DataPlane(config={"transaction.partition.verification.enable": "false"})
        self.plane.topic("t")
        self.model = Model()
        self.start = start

    @rule(
        producer_id=st.integers(1, 3),
        epoch=st.integers(0, 2),
        count=st.integers(1, 3),
        step=st.sampled_from([0, 0, 0, 0, 0, 1, -1, -2, -5]),
        transactional=st.booleans(),
    )
    def produce(self, producer_id: int, epoch: int, count: int, step: int, transactional: bool) -> None:
        """Sends a batch. Its sequence is usually the next one, but may leave a gap, repeat, or be older."""
        known = self.model.epoch(producer_id)
        cached = self.model.cached(producer_id)
        if cached and epoch == known:
            following = cached[-1].sequences[-1] + 1
            if step in {-1, -2, -5}:
                old = cached[max(step, -len(cached))]
                sequences = list(old.sequences)
            else:
                sequences = [(following + step + index) % 2**31 for index in range(count)]
        else:
            first = self.start if known == -1 else max(step, 0)
            sequences = [(first + index) % 2**31 for index in range(count)]
        expected = self.model.verdict(producer_id, epoch, sequences, transactional)
        response = self._append(producer_id, epoch, sequences, transactional)
        if expected is None:
            offset = self.model.end
            assert (response.error_code, response.base_offset) == (0, offset)
            self.model.log.append(Written(offset, len(sequences), producer_id, epoch, sequences, transactional))
        elif isinstance(expected, ErrorCode):
            assert (response.error_code, response.base_offset) == (expected, -1)
        else:
            assert (response.error_code, response.base_offset) == (0, expected)

    def _append(self, producer_id: int, epoch: int, sequences: list[int], transactional: bool) -> Any:
        records = batch_of(
            *[b"v"] * len(sequences),
            producer=(producer_id, epoch),
            sequence=sequences[0],
            transactional=transactional,
        )
        data = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            transactional_id="tid", acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        response = self.plane.send(request, 11)
        if hasattr(response, "on_complete"):
            # The response is made and waits in the pipeline for the commit.
            response = self.plane.pipeline._responses[-1].after_commit
        return response.responses[0].partition_responses[0]

    @rule(producer_id=st.integers(1, 3), epoch=st.integers(0, 3), commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, producer_id: int, epoch: int, commit: bool, version: int) -> None:
        """Writes an end marker of transaction version 1 or 2."""
        known, in_transaction = self.model.epoch(producer_id), producer_id in self.model.open()
        fenced = epoch < known or (version == 2 and epoch == known and in_transaction)
        partition = self.plane.partition("t")
        if fenced:
            with pytest.raises(KafkaError) as error:
                partition.append_marker(producer_id, epoch, 0, commit, 5, version)
            assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            return
        offset = partition.append_marker(producer_id, epoch, 0, commit, 5, version)
        assert offset == self.model.end
        self.model.log.append(Written(offset, 1, producer_id, epoch, [], True, "commit" if commit else "abort"))

    @rule()
    def commit(self) -> None:
        self.plane.commit()
        self.model.committed = self.model.end

    @precondition(lambda self: self.model.end > self.model.committed)
    @rule()
    def fail(self) -> None:
        """Makes a commit fail, which rolls back all appends since the last commit."""
        self.plane.fail_next_commit()
        assert not self.plane.commit()
        self.model.log = [batch for batch in self.model.log if batch.end <= self.model.committed]

    @rule()
    def restart(self) -> None:
        """Restarts the partition. Uncommitted appends are lost; all other state is unchanged."""
        self.plane.restart()
        self.model.log = [batch for batch in self.model.log if batch.end <= self.model.committed]

    @invariant()
    def same(self) -> None:
        partition = self.plane.partition("t")
        model = self.model
        assert partition.end_offset == model.end
        assert partition.high_watermark == model.committed
        assert partition.last_stable_offset == model.stable()
        assert partition.producers.open_transactions == model.open()
        assert list(partition.producers.open_transactions.values()) == sorted(model.open().values())
        assert [tuple(entry) for entry in partition.producers.aborted.entries] == model.aborted()
        entries = partition.producers.entries
        assert {producer_id: entry.epoch for producer_id, entry in entries.items()} == {
            batch.producer_id: model.epoch(batch.producer_id) for batch in model.log
        }
        for producer_id, entry in entries.items():
            assert [(b.base_offset, b.first_sequence, b.last_sequence, b.last_offset) for b in entry.batches] == [
                (b.offset, b.sequences[0], b.sequences[-1], b.end - 1) for b in model.cached(producer_id)
            ]


TestPartitionMachine = PartitionMachine.TestCase
TestPartitionMachine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 1)),
            st.tuples(st.just("committed"), st.integers(0, 12), st.just(0)),
            st.tuples(st.just("rollback"), st.integers(0, 12), st.just(0)),
        ),
        max_size=300,
    )
)
@settings(max_examples=40, deadline=None)
def test_any_uncommitted_appends_can_be_rolled_back(steps: list[tuple[str, int, int]]) -> None:
    """After a rollback to any high watermark, the state equals the state that results from the remaining batches."""
    states = ProducerStates()
    log: list[tuple[int, int, BatchMetadata]] = []
    durable = 0
    for step, value, epoch in steps:
        end = log[-1][2].last_offset + 1 if log else 0
        if step == "add":
            batch = BatchMetadata(end, end + 1, end, end + 1, 1000 + end)
            states.add_data(value, epoch, batch, False)
            log.append((value, epoch, batch))
        elif step == "committed":
            durable = max(durable, min(end, durable + 2 * value))
            states.committed(durable)
        else:
            left = min(durable + 2 * value, end)
            states.rollback(left)
            log = [entry for entry in log if entry[2].base_offset < left]
        expected: dict[int, tuple[int, list[BatchMetadata]]] = {}
        for producer_id, wrote_in, batch in log:
            known, batches = expected.get(producer_id, (-1, []))
            expected[producer_id] = (wrote_in, [*(batches if known == wrote_in else []), batch][-5:])
        assert {producer_id: entry.state() for producer_id, entry in states.entries.items()} == {
            producer_id: (wrote_in, -1, batches[-1].timestamp_ms, -1, tuple(batches))
            for producer_id, (wrote_in, batches) in expected.items()
        }


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    """A replaced coordinator cannot end transactions (KIP-98)."""
    states = ProducerStates()
    states.add_marker(7, 0, 0, 5, 3, True)
    with pytest.raises(KafkaError) as error:
        states.check_marker(7, 0, 2, 0)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    states.check_marker(7, 0, 3, 0)


def test_a_repeated_marker_is_accepted() -> None:
    """A marker of the current epoch without an open transaction repeats a marker whose response was lost (KIP-1228)."""
    plane = DataPlane()
    plane.topic("t")
    partition = plane.partition("t")
    assert partition.append_marker(7, 1, 0, True, 5, 2) == 0
    assert partition.append_marker(7, 1, 0, True, 5, 2) == 1
    assert partition.producers.aborted.entries == []


def test_a_marker_of_an_epoch_below_minus_one_is_fenced() -> None:
    """An unknown producer has epoch -1."""
    with pytest.raises(KafkaError) as error:
        ProducerStates().check_marker(7, -2, 0, 0)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("epoch", "fenced"), [(4, True), (2**15 - 1, False)])
def test_a_marker_of_the_epoch_of_an_open_transaction_is_fenced(epoch: int, fenced: bool) -> None:
    """With transaction.version 2, a marker has a larger epoch than the data, unless the data has the largest epoch."""
    plane = DataPlane(config={"transaction.partition.verification.enable": "false"})
    plane.topic("t")
    records = batch_of(b"v", producer=(7, epoch), sequence=0, transactional=True)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    response = plane.call(ProduceRequest(transactional_id="x", acks=-1, topic_data=[topic]), 11)
    assert response.responses[0].partition_responses[0].error_code == 0
    with pytest.raises(KafkaError) if fenced else nullcontext():
        plane.partition("t").producers.check_marker(7, epoch, 0, 2)


def test_idle_producers_expire_and_others_stay() -> None:
    """After producer.id.expiration.ms without appends, the partition forgets a producer, and accepts even an older
    epoch. A producer stays if it is in a transaction, or if its last append is not durable.
    """
    plane = DataPlane(config={"transaction.partition.verification.enable": "false"})
    plane.topic("t")
    now_ms = plane.now.wall_ms

    def produce(producer: tuple[int, int], sequence: int, transactional: bool = False, age_ms: int = 0) -> int:
        records = batch_of(
            b"v", producer=producer, sequence=sequence, transactional=transactional, timestamp_ms=now_ms - age_ms
        )
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[data])
        response = plane.call(ProduceRequest(transactional_id="x", acks=-1, topic_data=[topic]), 11)
        code: int = response.responses[0].partition_responses[0].error_code
        return code

    day_ms = 86_400_000
    for producer_id, transactional, age_ms in ((1, False, day_ms), (2, True, day_ms), (3, False, day_ms - 1)):
        assert produce((producer_id, 5), 0, transactional, age_ms) == 0
    assert produce((1, 4), 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    for _ in plane.housekeeping.expire_producers():
        pass
    assert sorted(plane.partition("t").producers.entries) == [2, 3]
    assert produce((1, 4), 9) == 0


def test_the_expiry_runs_by_its_timer() -> None:
    """The timer fires every producer.id.expiration.check.interval.ms, and the expiry runs in slices."""
    plane = DataPlane(config={"producer.id.expiration.ms": "50", "producer.id.expiration.check.interval.ms": "40"})
    plane.topic("t")
    partition = plane.partition("t")
    partition.append_marker(7, 0, 0, True, plane.now.wall_ms)
    plane.commit()
    plane.housekeeping.start()
    for age_ms, known in ((40, [7]), (80, [])):
        plane.advance(40)
        plane.slices.finish()
        assert (age_ms, list(partition.producers.entries)) == (age_ms, known)
