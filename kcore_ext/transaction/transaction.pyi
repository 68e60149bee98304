from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, final

from kcore_ext.batch import BatchBuilder

R = TypeVar("R")

@final
class Transaction:
    """A transactional id as of its last transition. Never changed: a transition makes another one.

    It is what stands in the log (`encode_value`), and what is held in memory; one field is not written, as in Kafka,
    and is unknown after a load: `last_producer_epoch`.

    Attributes:
        producer_id: the id in use.
        previous_producer_id: the one in use before this transition; the same but when an epoch was exhausted.
        next_producer_id: the one that takes over when the transaction is complete, because the epoch is exhausted
            (KIP-890); -1: none.
        producer_epoch: its epoch.
        last_producer_epoch: the epoch that the producer knew before it asked for this one; a producer that asks with
            it repeats itself (KIP-360). -1: none.
        timeout_ms: how long a transaction may take.
        partitions: topic -> partitions of the transaction.
        start_ms: when the transaction began, in ms since the epoch; -1 before the first one.
        last_update_ms: when anything happened last, in ms since the epoch.
        client_version: the transaction.version of the request behind this transition (KIP-890).

    Raises:
        ValueError: the state is none that there is.
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
        """Where it is: a `TransactionStatus`."""

    @property
    def exhausted(self) -> bool:
        """Whether the producer cannot get a higher epoch: it needs another id."""

    @property
    def completed_identity(self) -> tuple[int, int]:
        """(producer id, epoch) once a prepared transaction is complete."""

    def topic_partitions(self) -> Iterator[tuple[str, int]]:
        """Its partitions one by one."""

    def encode_value(self, version: int) -> bytes:
        """The value of its record (`TransactionLogValue`): v0 knows nothing of KIP-890. In the state Empty the
        partitions are null.

        Raises:
            ValueError: a topic's name does not fit, or the version is neither 0 nor 1.
        """

@final
class TransactionBlock(Generic[R]):
    """The record of one transition, which writes itself: a `RecordBlock` of one.

    Args:
        transactional_id: whose.
        value: what the id becomes.
        version: the version that the value is written in.
        make_record: makes the record that this stands for, of the other three.

    Attributes:
        size_bytes: what the record takes in a batch at most.

    Raises:
        ValueError: the id does not fit in the key of a record, a topic's name not in the value, or the version is
            neither 0 nor 1.
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
        """Adds the record to a batch; False if it does not fit."""

def bind_states(
    states: Iterable[int], before: Mapping[Any, Iterable[int]], completed: Mapping[Any, int]
) -> Mapping[str, frozenset[int]]:
    """Takes the tables of states, once, before there is any transaction.

    Args:
        states: all of them, by their numbers.
        before: of each, which may come before it.
        completed: what a prepared one becomes.

    Returns:
        What `complete` leaves of a transaction's partitions: none.

    Raises:
        ValueError: the states are not numbered from 0 to 7.
    """

def add(
    transaction: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    places: Iterable[tuple[str, int]],
    client_version: int,
    wall_ms: int,
) -> Transaction | int:
    """Adds partitions to a transaction; see `kcore.transaction.adding.add`."""

def check_since_v5(
    table: tuple[R, ...], transaction: Transaction | None, producer_id: int, producer_epoch: int, commit: bool
) -> R:
    """What EndTxn v5 is answered; see `kcore.transaction.ending.check_since_v5`.

    Args:
        table: first the answer to a stranger; then six for each state in the order of their numbers: of the current
            epoch, of the one before the last bump, and of any other, for an abort and for a commit each.
        transaction: the id as it is; None for one that is not known.
        producer_id: who asks.
        producer_epoch: in which epoch.
        commit: how it shall end.
    """

def prepare(
    transaction: Transaction, commit: bool, version: int, wall_ms: int, take: Callable[[], int | None]
) -> Transaction | None:
    """The end that a producer asked for, decided; None: it needs another producer id, and `take` has none. See
    `kcore.transaction.ending.prepare`.
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
    """A decided end with what changes in it."""

def complete(transaction: Transaction, wall_ms: int) -> Transaction:
    """What a prepared transaction is once every partition has its marker.

    Raises:
        ValueError: its end was not decided.
    """
