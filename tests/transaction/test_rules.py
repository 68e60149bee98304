"""The pure rules of transactions: states, initialisation, additions, ends. Each line of a table is one case."""

from __future__ import annotations

import pytest

from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.records.transaction_log import TransactionLogValue
from kcore.transaction import adding, ending, initializing
from kcore.transaction.ending import ProducerIdsExhaustedError
from kcore.transaction.initializing import Identity
from kcore.transaction.states import (
    BY_NAME,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETION,
    DEAD,
    EMPTY,
    NAMES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREVIOUS,
    TransactionStatus,
)
from kcore.transaction.transaction import LAST_EPOCH, Transaction, of_value

NOW = 1_700_000_000_000
STORED = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
PID = 7


def transaction(state: TransactionStatus = ONGOING, **changes: int) -> Transaction:
    values = {
        "producer_id": PID,
        "previous_producer_id": PID,
        "next_producer_id": -1,
        "producer_epoch": 5,
        "last_producer_epoch": -1,
        "timeout_ms": 60_000,
        "start_ms": NOW - 100,
        "last_update_ms": NOW - 50,
        "client_version": 0,
        **changes,
    }
    filled = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    return Transaction(state=state, partitions={"t": frozenset({0})} if filled else {}, **values)


FIELDS = (
    "producer_id",
    "previous_producer_id",
    "next_producer_id",
    "producer_epoch",
    "last_producer_epoch",
    "timeout_ms",
    "state",
    "partitions",
    "start_ms",
    "last_update_ms",
    "client_version",
)


def fields(found: object) -> dict[str, object]:
    assert isinstance(found, Transaction), found
    return {name: getattr(found, name) for name in FIELDS}


def none_left() -> int | None:
    return None


def test_the_table_of_states_is_total() -> None:
    """Every state has a row. No transition leaves Dead, and a prepared end leads only to its completion."""
    assert set(PREVIOUS) == set(TransactionStatus) == set(NAMES)
    following = {state: {after for after in PREVIOUS if state in PREVIOUS[after]} for state in TransactionStatus}
    assert following == {
        EMPTY: {EMPTY, ONGOING, PREPARE_ABORT, DEAD},
        ONGOING: {ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE},
        PREPARE_COMMIT: {COMPLETE_COMMIT},
        PREPARE_ABORT: {COMPLETE_ABORT},
        COMPLETE_COMMIT: {EMPTY, ONGOING, PREPARE_ABORT, DEAD},
        COMPLETE_ABORT: {EMPTY, ONGOING, PREPARE_ABORT, DEAD},
        DEAD: set(),
        PREPARE_EPOCH_FENCE: {PREPARE_ABORT},
    }


def test_states_have_kafkas_names_and_numbers() -> None:
    assert [NAMES[TransactionStatus(number)] for number in range(8)] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert BY_NAME["CompleteAbort"] is COMPLETE_ABORT


def test_the_tables_of_ends_are_total() -> None:
    """Each state that a log can contain has a response to every EndTxn."""
    assert set(ending.BEFORE_V5) == {(state, commit) for state in STORED for commit in (True, False)}
    assert set(ending.SINCE_V5) == {
        (state, epoch, commit) for state in STORED for epoch in ending.Epoch for commit in (True, False)
    }


BEFORE = {  # state: (commit, abort); None: the end is prepared
    EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    ONGOING: (None, None),
    PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
    PREPARE_ABORT: (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
    COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}


@pytest.mark.parametrize("state", STORED)
def test_before_version_5_an_end_depends_on_state_and_producer(state: TransactionStatus) -> None:
    """The producer is checked first, then the state (KIP-98)."""
    found = transaction(state)
    commit, abort = BEFORE[state]
    for committed, code in ((True, commit), (False, abort)):
        assert ending.check_before_v5(found, PID, 5, committed) is code
        assert ending.check_before_v5(found, PID + 1, 5, committed) is E.INVALID_PRODUCER_ID_MAPPING
        assert ending.check_before_v5(found, PID, 4, committed) is E.PRODUCER_FENCED
        assert ending.check_before_v5(found, PID, 6, committed) is E.PRODUCER_FENCED
        assert ending.check_before_v5(None, PID, 5, committed) is E.INVALID_PRODUCER_ID_MAPPING


SINCE = {  # state: (commit, abort) with the present epoch, (commit, abort) with the previous one
    EMPTY: ((E.INVALID_TXN_STATE, None), (E.PRODUCER_FENCED, E.PRODUCER_FENCED)),
    ONGOING: ((None, None), (E.PRODUCER_FENCED, E.PRODUCER_FENCED)),
    PREPARE_COMMIT: ((E.CONCURRENT_TRANSACTIONS,) * 2,) * 2,
    PREPARE_ABORT: ((E.CONCURRENT_TRANSACTIONS,) * 2,) * 2,
    COMPLETE_COMMIT: ((E.INVALID_TXN_STATE, None), (E.NONE, E.INVALID_TXN_STATE)),
    COMPLETE_ABORT: ((E.INVALID_TXN_STATE, None), (E.INVALID_TXN_STATE, E.NONE)),
}


@pytest.mark.parametrize("state", STORED)
def test_since_version_5_an_end_depends_on_state_and_producer(state: TransactionStatus) -> None:
    """A pending completion is checked first, then the producer. A request with the epoch before the last increase is a
    retry (KIP-890).
    """
    found = transaction(state)
    busy = E.CONCURRENT_TRANSACTIONS if state in COMPLETION else None
    for epoch, responses in ((5, SINCE[state][0]), (4, SINCE[state][1])):
        for committed, code in zip((True, False), responses, strict=True):
            assert ending.check_since_v5(found, PID, epoch, committed) is code, (epoch, committed)
    for committed in (True, False):
        assert ending.check_since_v5(found, PID + 1, 5, committed) is (busy or E.INVALID_PRODUCER_ID_MAPPING)
        assert ending.check_since_v5(found, PID, 3, committed) is (busy or E.PRODUCER_FENCED)
        assert ending.check_since_v5(found, PID, 6, committed) is (busy or E.PRODUCER_FENCED)
        assert ending.check_since_v5(None, PID, 5, committed) is E.INVALID_PRODUCER_ID_MAPPING


def test_a_repeated_end_is_recognised_though_it_changed_the_producer_id() -> None:
    """At the last epoch, the completion has replaced the producer id by a new id at epoch 0 (KIP-890)."""
    found = transaction(COMPLETE_COMMIT, previous_producer_id=3, producer_epoch=0)
    assert ending.check_since_v5(found, 3, LAST_EPOCH, True) is E.NONE
    assert ending.check_since_v5(found, 3, LAST_EPOCH, False) is E.INVALID_TXN_STATE
    assert ending.check_since_v5(found, 3, LAST_EPOCH - 1, True) is E.INVALID_PRODUCER_ID_MAPPING


def test_an_end_of_version_2_raises_the_epoch() -> None:
    found = ending.prepare(transaction(), True, 2, NOW, none_left)
    assert fields(found) == fields(transaction(PREPARE_COMMIT)) | {
        "producer_epoch": 6,
        "last_producer_epoch": 5,
        "client_version": 2,
        "last_update_ms": NOW,
    }
    assert found.completed_identity == (PID, 6)
    assert fields(ending.complete(found, NOW + 1)) == fields(found) | {
        "state": COMPLETE_COMMIT,
        "partitions": {},
        "last_update_ms": NOW + 1,
    }


def test_an_end_of_earlier_versions_keeps_the_epoch() -> None:
    found = ending.prepare(transaction(client_version=2), False, 0, NOW, none_left)
    assert fields(found) == fields(transaction(PREPARE_ABORT)) | {"last_update_ms": NOW}


def test_the_last_epoch_takes_another_producer_id_with_the_completion() -> None:
    """A transaction that ends at epoch 32767 gives the producer another id at epoch 0 (KIP-890).

    Epoch 32767 is reserved for the coordinator, which uses it only in markers.
    """
    found = ending.prepare(transaction(producer_epoch=LAST_EPOCH), True, 2, NOW, lambda: 99)
    assert (found.producer_id, found.producer_epoch, found.next_producer_id) == (PID, 32_767, 99)
    assert found.completed_identity == (99, 0)
    after = ending.complete(found, NOW)
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id, after.next_producer_id) == (
        99,
        0,
        PID,
        -1,
    )
    assert after.last_producer_epoch == LAST_EPOCH
    with pytest.raises(ProducerIdsExhaustedError):
        ending.prepare(transaction(producer_epoch=LAST_EPOCH), True, 2, NOW, none_left)


def test_an_abort_without_a_transaction_begins_when_it_ends() -> None:
    found = ending.prepare(transaction(EMPTY, start_ms=-1), False, 2, NOW, none_left)
    assert (found.state, found.start_ms, dict(found.partitions)) == (PREPARE_ABORT, NOW, {})


@pytest.mark.parametrize(("version", "last_epoch"), [(0, -1), (1, -1), (2, 5)])
def test_a_fence_raises_the_epoch_by_one(version: int, last_epoch: int) -> None:
    """The epoch is never raised by two. Under version 2, the fenced producer can continue with its new epoch
    (KAFKA-19367).
    """
    found = ending.fence(transaction(), version, NOW, none_left)
    assert fields(found) == fields(transaction(PREPARE_ABORT)) | {
        "producer_epoch": 6,
        "last_producer_epoch": last_epoch,
        "client_version": version,
        "last_update_ms": NOW,
    }


def test_only_version_2_replaces_the_producer_id_in_a_fence_at_the_last_epoch() -> None:
    """Under version 2, a fence at the last epoch replaces the producer id.

    Under version 1, the producer id stays, and only the next InitProducerId replaces it (KAFKA-20090).
    """
    exhausted = transaction(producer_epoch=LAST_EPOCH)
    assert ending.fence(exhausted, 2, NOW, lambda: 99).completed_identity == (99, 0)
    assert ending.fence(exhausted, 1, NOW, none_left).completed_identity == (PID, 32_767)


def test_no_end_exceeds_the_last_epoch_of_the_coordinator() -> None:
    """A client may have begun a transaction with epoch 32767, which a fence before version 2 left. The end keeps this
    epoch, because the records of the log have 16 bits for it.
    """
    reserved = transaction(producer_epoch=LAST_EPOCH + 1)
    for version in (0, 1):
        found = ending.fence(reserved, version, NOW, none_left)
        assert (found.producer_epoch, found.completed_identity) == (32_767, (PID, 32_767))
    for found in (ending.fence(reserved, 2, NOW, lambda: 99), ending.prepare(reserved, True, 2, NOW, lambda: 99)):
        assert (found.producer_epoch, found.completed_identity) == (32_767, (99, 0))


EXPECTED = [  # (state, expected, code); the id is (7, 5), before it (3, 32766)
    (EMPTY, None, E.NONE),
    (EMPTY, (7, 5), E.NONE),
    (EMPTY, (7, 99), E.NONE),  # with the right id, later checks decide
    (EMPTY, (3, 32_766), E.NONE),
    (EMPTY, (3, 32_765), E.PRODUCER_FENCED),
    (EMPTY, (8, 5), E.PRODUCER_FENCED),
    (ONGOING, (7, 1), E.NONE),
    (ONGOING, (8, 5), E.PRODUCER_FENCED),
    (PREPARE_COMMIT, None, E.CONCURRENT_TRANSACTIONS),
    (PREPARE_ABORT, (8, 5), E.CONCURRENT_TRANSACTIONS),
    (COMPLETE_COMMIT, (8, 5), E.PRODUCER_FENCED),
    (COMPLETE_ABORT, None, E.NONE),
]


@pytest.mark.parametrize(("state", "expected", "code"), EXPECTED)
def test_initialization_depends_on_state_and_producer(
    state: TransactionStatus, expected: tuple[int, int] | None, code: E
) -> None:
    identity = None if expected is None else Identity(*expected)
    assert initializing.check(transaction(state, previous_producer_id=3), identity) is code
    assert initializing.check(None, identity) is E.NONE


IDENTITIES = [  # (epoch, last epoch, expected) -> (producer id, epoch, last epoch); 99 is a new id
    ((5, -1, None), (7, 6, -1)),
    ((5, 4, None), (7, 6, -1)),
    ((5, -1, (7, 5)), (7, 6, 5)),
    ((5, 4, (7, 4)), (7, 5, 4)),
    ((5, 4, (7, 3)), E.PRODUCER_FENCED),
    ((5, -1, (7, 6)), E.PRODUCER_FENCED),
    ((LAST_EPOCH, -1, None), (99, 0, -1)),
    ((32_767, -1, None), (99, 0, -1)),
    ((LAST_EPOCH, -1, (7, LAST_EPOCH)), (99, 0, LAST_EPOCH)),
    ((LAST_EPOCH, 32_765, (7, 32_765)), (7, LAST_EPOCH, 32_765)),
    ((LAST_EPOCH, 32_765, (7, 9)), E.PRODUCER_FENCED),
    ((0, LAST_EPOCH, (7, LAST_EPOCH)), (7, 0, LAST_EPOCH)),
]


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize(("request_fields", "wanted"), IDENTITIES)
def test_initialization_raises_the_epoch_replaces_the_id_or_repeats_a_response(
    state: TransactionStatus, request_fields: tuple, wanted: object
) -> None:
    """A request with the previous epoch is a retry. After the last epoch, the producer gets another id (KIP-360)."""
    epoch, last_epoch, expected = request_fields
    found = transaction(state, producer_epoch=epoch, last_producer_epoch=last_epoch)
    identity = None if expected is None else Identity(*expected)
    result = initializing.initialize(found, identity, 1234, NOW, lambda: 99)
    if isinstance(wanted, E):
        assert result is wanted
        return
    assert fields(result) == {
        "producer_id": wanted[0],
        "previous_producer_id": PID,
        "next_producer_id": -1,
        "producer_epoch": wanted[1],
        "last_producer_epoch": wanted[2],
        "timeout_ms": 1234,
        "state": EMPTY,
        "partitions": {},
        "start_ms": -1,
        "last_update_ms": NOW,
        "client_version": 0,
    }


def test_a_new_id_begins_at_epoch_zero_whatever_is_expected() -> None:
    for expected in (None, Identity(55, 3)):
        result = initializing.initialize(None, expected, 1234, NOW, lambda: 99)
        assert isinstance(result, Transaction)
        assert (result.producer_id, result.previous_producer_id, result.producer_epoch) == (99, 99, 0)
    with pytest.raises(ProducerIdsExhaustedError):
        initializing.initialize(None, None, 1234, NOW, none_left)


@pytest.mark.parametrize("state", STORED)
def test_additions_depend_on_state_and_producer(state: TransactionStatus) -> None:
    """A pending completion is checked first, then the producer id, then the epoch (KAFKA-18660)."""
    found = transaction(state)
    topic_partitions = [("t", 0), ("u", 1), ("u", 1)]
    if state in COMPLETION:
        for pid, epoch in ((PID, 5), (PID + 1, 5), (PID, 9)):
            assert adding.add(found, pid, epoch, topic_partitions, 0, NOW) is E.CONCURRENT_TRANSACTIONS
        return
    assert adding.add(found, PID + 1, 9, topic_partitions, 0, NOW) is E.INVALID_PRODUCER_ID_MAPPING
    assert adding.add(found, PID, 4, topic_partitions, 0, NOW) is E.PRODUCER_FENCED
    assert adding.add(found, PID, 6, topic_partitions, 0, NOW) is E.PRODUCER_FENCED
    assert fields(adding.add(found, PID, 5, topic_partitions, 2, NOW)) == fields(found) | {
        "state": ONGOING,
        "partitions": {"t": frozenset({0}), "u": frozenset({1})},
        "start_ms": NOW - 100 if state is ONGOING else NOW,
        "last_update_ms": NOW,
        "client_version": 2,
    }


def test_adding_an_existing_partition_writes_nothing() -> None:
    assert adding.add(transaction(), PID, 5, [("t", 0)], 0, NOW) is E.NONE
    assert adding.add(transaction(), PID, 5, [], 0, NOW) is E.NONE
    assert isinstance(adding.add(transaction(EMPTY), PID, 5, [], 0, NOW), Transaction)
    assert adding.add(None, PID, 5, [], 0, NOW) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", STORED)
def test_verification_depends_on_state_and_producer(state: TransactionStatus) -> None:
    """`adding.verify` first checks the producer id and epoch. Then it refuses a transaction that is being completed."""
    found = transaction(state)
    assert adding.verify(None, PID, 5) is E.INVALID_PRODUCER_ID_MAPPING
    assert adding.verify(found, PID + 1, 5) is E.INVALID_PRODUCER_ID_MAPPING
    assert adding.verify(found, PID, 6) is E.PRODUCER_FENCED
    assert adding.verify(found, PID, 5) is (E.CONCURRENT_TRANSACTIONS if state in COMPLETION else E.NONE)
    assert adding.verify_partition(found, "t", 1) is E.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("state", STORED)
def test_records_contain_all_but_the_last_epoch(state: TransactionStatus, version: int) -> None:
    """A decoded record has all fields of the transaction except `last_producer_epoch`, which no version contains.

    Version 0 also lacks the fields of KIP-890.
    """
    found = transaction(state, previous_producer_id=3, next_producer_id=99, last_producer_epoch=4, client_version=2)
    value = TransactionLogValue.decode_value(found.encode_value(version))
    lost = {"last_producer_epoch": -1}
    if version == 0:
        lost |= {"previous_producer_id": -1, "next_producer_id": -1, "client_version": 0}
    assert fields(of_value(value)) == fields(found) | lost
    assert (value.transaction_partitions is None) is (state is EMPTY)


@pytest.mark.parametrize("status", [-1, 6, 7, 8])
def test_an_invalid_status_is_refused(status: int) -> None:
    with pytest.raises(ValueError, match="status"):
        of_value(TransactionLogValue(transaction_status=status))
