"""The compiled state changes of a transactional id equal those of the reference implementation.

Their records have the same bytes as those of the codec.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.protocol.error_codes import ErrorCode as E
from kcore.runtime.machine import Record
from kcore.transaction import adding, ending
from kcore.transaction.ending import ProducerIdsExhaustedError
from kcore.transaction.states import COMPLETION, PREVIOUS, TransactionStatus
from kcore.transaction.transaction import LAST_EPOCH, record_of
from kcore_ext.batch import BatchBuilder, iter_records
from kcore_ext.transaction.transaction import Transaction, TransactionBlock, bind_states
from tests.reference import transaction as reference
from tests.reference.transaction import ReferenceTransaction

STATES = list(TransactionStatus)[:6]
PIDS = st.sampled_from([-1, 0, 7, 8, 2**63 - 1])
EPOCHS = st.sampled_from([-1, 0, 1, 5, 6, LAST_EPOCH - 1, LAST_EPOCH, 32_767])
TIMES = st.integers(-1, 2**63 - 1)
NAMES = st.one_of(st.sampled_from(["t", "u", "__consumer_offsets"]), st.text(min_size=1, max_size=200))
INDEXES = st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1))
PARTITIONS = st.dictionaries(NAMES, st.frozensets(INDEXES, min_size=1, max_size=5), max_size=4)
PLACES = st.lists(st.tuples(NAMES, INDEXES), max_size=6)

transactions = st.builds(
    ReferenceTransaction,
    producer_id=PIDS,
    previous_producer_id=PIDS,
    next_producer_id=PIDS,
    producer_epoch=EPOCHS,
    last_producer_epoch=EPOCHS,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(STATES),
    partitions=PARTITIONS,
    start_ms=TIMES,
    last_update_ms=TIMES,
    client_version=st.integers(0, 2),
)
FIELDS = tuple(ReferenceTransaction.__dataclass_fields__)


def compiled(transaction: ReferenceTransaction | None) -> Transaction | None:
    if transaction is None:
        return None
    return Transaction(**{name: getattr(transaction, name) for name in FIELDS})


def values(found: Any) -> Any:
    """Returns a transaction as a dict of its fields, and any other value unchanged."""
    if isinstance(found, ReferenceTransaction):
        return asdict(found)
    if isinstance(found, Transaction):
        return {name: getattr(found, name) for name in FIELDS} | {"partitions": dict(found.partitions)}
    return found


@given(transactions, st.integers(0, 1))
def test_values_have_the_codecs_bytes(transaction: ReferenceTransaction, version: int) -> None:
    made = compiled(transaction)
    assert made is not None
    assert values(made) == values(transaction)
    assert made.encode_value(version) == transaction.encode_value(version)
    assert made.completed_identity == transaction.completed_identity
    assert sorted(made.topic_partitions()) == sorted((t, i) for t, all in transaction.partitions.items() for i in all)


@given(st.text(min_size=1, max_size=300), transactions, st.integers(0, 1), st.integers(0, 2**40))
def test_a_block_equals_its_record(
    transactional_id: str, transaction: ReferenceTransaction, version: int, timestamp_ms: int
) -> None:
    """A `TransactionBlock` appends the same bytes to a batch as its record would.

    The number of bytes is at most `TransactionBlock.size_bytes`.
    """
    made = compiled(transaction)
    assert made is not None
    block = TransactionBlock(transactional_id, made, version, record_of)
    [record] = block
    assert len(block) == 1
    assert isinstance(record, Record)
    assert record.key.encode_key() == reference.encode_key(transactional_id)
    assert (record.value, record.version) == (made, version)
    fast, slow = (BatchBuilder(1 << 20, base_timestamp_ms=0) for _ in range(2))
    before = fast.size_bytes
    assert block.append_to(fast, timestamp_ms)
    assert slow.append(timestamp_ms, reference.encode_key(transactional_id), transaction.encode_value(version))
    assert fast.build() == slow.build()
    assert fast.size_bytes - before <= block.size_bytes
    assert [found.value for found in iter_records(fast.build())] == [transaction.encode_value(version)]


def test_a_block_that_does_not_fit_leaves_the_batch_unchanged() -> None:
    made = Transaction(7, 7, -1, 0, -1, 1, TransactionStatus.ONGOING, {"t": frozenset({0})}, 1, 1, 2)
    batch = BatchBuilder(100, base_timestamp_ms=0)
    empty = batch.size_bytes
    assert not TransactionBlock("x" * 100, made, 1, record_of).append_to(batch, 0)
    assert (batch.size_bytes, batch.count) == (empty, 0)


@given(st.none() | transactions, PIDS, EPOCHS, PLACES, st.integers(0, 2), TIMES, st.booleans())
def test_additions_are_equal(
    transaction: ReferenceTransaction | None,
    producer_id: int,
    producer_epoch: int,
    partition_list: list[tuple[str, int]],
    client_version: int,
    wall_ms: int,
    own: bool,
) -> None:
    if own and transaction is not None:
        producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    made = compiled(transaction)
    before = values(made)
    found = adding.add(made, producer_id, producer_epoch, partition_list, client_version, wall_ms)
    assert values(found) == values(
        reference.add(transaction, producer_id, producer_epoch, partition_list, client_version, wall_ms)
    )
    assert values(made) == before


@given(st.none() | transactions, PIDS, EPOCHS, st.booleans(), st.booleans())
def test_checks_of_an_end_are_equal(
    transaction: ReferenceTransaction | None, producer_id: int, producer_epoch: int, commit: bool, own: bool
) -> None:
    if own and transaction is not None:
        producer_id = transaction.producer_id
    found = ending.check_since_v5(compiled(transaction), producer_id, producer_epoch, commit)
    assert found is reference.check_since_v5(transaction, producer_id, producer_epoch, commit)


@given(transactions, st.booleans(), st.integers(0, 2), TIMES, st.none() | st.integers(100, 200))
def test_preparing_and_completing_are_equal(
    transaction: ReferenceTransaction, commit: bool, version: int, wall_ms: int, next_id: int | None
) -> None:
    expected = reference.prepare(transaction, commit, version, wall_ms, lambda: next_id)
    made = compiled(transaction)
    assert made is not None
    if expected is None:
        with pytest.raises(ProducerIdsExhaustedError):
            ending.prepare(made, commit, version, wall_ms, lambda: next_id)
        return
    prepared = ending.prepare(made, commit, version, wall_ms, lambda: next_id)
    assert values(prepared) == values(expected)
    assert values(ending.complete(prepared, wall_ms)) == values(reference.complete(expected, wall_ms))


def test_only_a_prepared_end_can_be_completed() -> None:
    for state in TransactionStatus:
        made = Transaction(7, 7, -1, 0, -1, 1, state, {}, 1, 1, 2)
        assert made.state is state
        if state not in COMPLETION:
            with pytest.raises(ValueError, match="not decided"):
                ending.complete(made, 1)
    assert adding.add(None, 1, 1, [], 0, 1) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", [-1, 8])
def test_an_invalid_state_is_refused(state: int) -> None:
    with pytest.raises(ValueError, match="not a state"):
        Transaction(7, 7, -1, 0, -1, 1, state, {}, 1, 1, 2)


def test_names_too_long_for_a_record_are_refused() -> None:
    """A name of 32767 bytes fits. One byte more is an error before anything is written."""
    fits, long = "x" * 32_767, "x" * 32_768
    made = Transaction(7, 7, -1, 0, -1, 1, TransactionStatus.ONGOING, {fits: frozenset({0})}, 1, 1, 2)
    assert TransactionBlock(fits, made, 0, record_of).append_to(BatchBuilder(1 << 20, base_timestamp_ms=0), 0)
    with pytest.raises(ValueError, match="32768 bytes"):
        TransactionBlock(long, made, 1, record_of)
    made = Transaction(7, 7, -1, 0, -1, 1, TransactionStatus.ONGOING, {long: frozenset({0})}, 1, 1, 2)
    with pytest.raises(ValueError, match="32768 bytes"):
        made.encode_value(0)
    for version in (-1, 2):
        with pytest.raises(ValueError, match="version"):
            made.encode_value(version)


def test_other_tables_of_states_are_refused() -> None:
    with pytest.raises(ValueError, match="numbered"):
        bind_states(STATES, PREVIOUS, COMPLETION)


def test_many_partitions_are_added_in_linear_time() -> None:
    """The ratio of two CPU times depends little on the machine. Linear work gives a ratio of 20, and quadratic work one
    of 400.
    """
    before = Transaction(1, -1, -1, 0, -1, 60_000, TransactionStatus.ONGOING, {"t": frozenset({0})}, 5, 5, 2)

    def measure(count: int) -> float:
        partition_list = [("t", index) for index in range(count)] + [("u", index) for index in range(count)]
        times = []
        for _ in range(20):
            begun_s = time.thread_time()
            result = adding.add(before, 1, 0, partition_list, 2, 9)
            times.append(time.thread_time() - begun_s)
            assert isinstance(result, Transaction)
            assert result.partitions == {name: frozenset(range(count)) for name in ("t", "u")}
        return min(times)

    measure(100)
    assert measure(20_000) < 200 * measure(1_000)
