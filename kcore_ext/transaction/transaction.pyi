from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, final

from kcore_ext.batch import BatchBuilder

R = TypeVar("R")

@final
class Transaction:
    """The current state of a transactional id. It is immutable; a transition makes another object.

    The log has all fields (`encode_value`) except `last_producer_epoch`, which is unknown after a load, as in Kafka.

    Attributes:
        producer_id: the current producer id.
        previous_producer_id: the producer id before this transition. It differs from `producer_id` only after an
            exhausted epoch.
        next_producer_id: the producer id after the completion, if the epoch is exhausted (KIP-890); -1: none.
        producer_epoch: the current producer epoch.
        last_producer_epoch: the epoch of the producer before the last request that increased the epoch; -1: none. A
            request with this epoch is a repetition (KIP-360).
        timeout_ms: the timeout of a transaction.
        partitions: topic -> partitions of the transaction.
        start_ms: the start of the transaction, in ms since the epoch; -1 before the first transaction.
        last_update_ms: the time of the last transition, in ms since the epoch.
        client_version: the transaction.version of the request that caused this transition (KIP-890).

    Raises:
        ValueError: the state is not a number of `TransactionStatus`.
    """

    def __init__(
        self,
        producer_id: int,
        previous_producer_id: int,
        next_producer_id: int,
        producer_epoch: int,
        last_producer_epoch: int,
        timeout_ms: int,
        state: int,
        partitions: Mapping[str, frozenset[int]],
        start_ms: int,
        last_update_ms: int,
        client_version: int,
    ) -> None: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def previous_producer_id(self) -> int: ...
    @property
    def next_producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def last_producer_epoch(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def partitions(self) -> Mapping[str, frozenset[int]]: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def last_update_ms(self) -> int: ...
    @property
    def client_version(self) -> int: ...
    @property
    def state(self) -> Any:
        """The state, a `TransactionStatus`."""

    @property
    def exhausted(self) -> bool:
        """True if the producer has the highest epoch, and therefore needs another producer id next."""

    @property
    def completed_identity(self) -> tuple[int, int]:
        """The (producer id, epoch) after the completion of a prepared transaction."""

    def topic_partitions(self) -> Iterator[tuple[str, int]]:
        """Iterates over the partitions of the transaction."""

    def encode_value(self, version: int) -> bytes:
        """Encodes the value of the record (`TransactionLogValue`). v0 lacks the fields of KIP-890. In the state Empty
        the partitions are null.

        Raises:
            ValueError: a topic's name is too long, or the version is neither 0 nor 1.
        """

@final
class TransactionBlock(Generic[R]):
    """The record of one transition: a `RecordBlock` of one record.

    Args:
        transactional_id: the key of the record.
        value: the value after the transition.
        version: the version of the value in the log.
        make_record: makes the equivalent record from the other three arguments.

    Attributes:
        size_bytes: the maximum size of the record in a batch.

    Raises:
        ValueError: the id is too long for the key of a record, a topic's name is too long for the value, or the version
            is neither 0 nor 1.
    """

    def __init__(
        self, transactional_id: str, value: Transaction, version: int, make_record: Callable[[str, Transaction, int], R]
    ) -> None: ...
    @property
    def transactional_id(self) -> str: ...
    @property
    def value(self) -> Transaction: ...
    @property
    def size_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[R]: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the record to a batch; returns False if it does not fit."""

def bind_states(
    states: Iterable[int], before: Mapping[Any, Iterable[int]], completed: Mapping[Any, int]
) -> Mapping[str, frozenset[int]]:
    """Sets the table of state transitions. It must be called once, before the first transaction is created.

    Args:
        states: all states, in the order of their numbers.
        before: state -> the states that may precede it.
        completed: prepared state -> the state after the completion.

    Returns:
        The empty mapping of partitions that `complete` uses.

    Raises:
        ValueError: the states are not numbered from 0 to 7.
    """

def add(
    transaction: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    additions: Iterable[tuple[str, int]],
    client_version: int,
    wall_ms: int,
) -> Transaction | int:
    """Adds partitions to a transaction, like `kcore.transaction.adding.add`.

    Returns the new value, or an error code as a plain number.
    """

def check_since_v5(
    table: tuple[R, ...], transaction: Transaction | None, producer_id: int, producer_epoch: int, commit: bool
) -> R:
    """Returns the result of checking an EndTxn v5, like `kcore.transaction.ending.check_since_v5`.

    Args:
        table: the possible results. The first result is for an unknown producer. Then each transaction state has six
            results, in the order of the states' numbers. They are for abort and commit with the current epoch, with
            the epoch before the last increase, and with any other epoch.
        transaction: the current state of the transactional id; None for an unknown id.
        producer_id: the producer id of the request.
        producer_epoch: the producer epoch of the request.
        commit: True to commit, False to abort.
    """

def prepare(
    transaction: Transaction, commit: bool, version: int, wall_ms: int, take: Callable[[], int | None]
) -> Transaction | None:
    """Returns the prepared end of a transaction, like `kcore.transaction.ending.prepare`.

    This function calls `take` if the transaction needs another producer id. If `take` returns None, this function
    returns None, whereas `kcore.transaction.ending.prepare` raises an exception.
    """

def prepared(
    transaction: Transaction,
    commit: bool,
    epoch: int,
    last_epoch: int,
    next_id: int,
    start_ms: int,
    wall_ms: int,
    version: int,
) -> Transaction:
    """Returns the transaction with a prepared end; the arguments are its new fields."""

def complete(transaction: Transaction, wall_ms: int) -> Transaction:
    """Returns the state of a transactional id after the completion of its prepared transaction.

    Raises:
        ValueError: the transaction is not prepared.
    """
