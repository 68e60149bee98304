"""The interfaces between the runtime and its state machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kcore_ext.runtime.outcome import Outcome

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.pending import Pending
    from kcore.runtime.shard import Shard
    from kcore.runtime.shard_timer import ShardTimer
    from kcore_ext.batch import BatchBuilder
    from kcore_ext.batch.run import Run
    from kcore_ext.runtime.timer_wheel import Timer

__all__ = [
    "BlockReplay",
    "EncodableKey",
    "EncodableValue",
    "Outcome",
    "Record",
    "RecordBlock",
    "RunReplay",
    "ShardContext",
    "StateMachine",
]


class EncodableKey(Protocol):
    """The key of a record."""

    def encode_key(self) -> bytes | None:
        """Returns the key's bytes as stored in the log."""
        ...


class EncodableValue(Protocol):
    """The value of a record."""

    def encode_value(self, version: int) -> bytes:
        """Returns the value's bytes as stored in the log, which begin with the version."""
        ...


class Record(NamedTuple):
    """A typed record of an internal topic: `decide` returns it, `replay` applies it.

    Attributes:
        key: the record's key.
        value: the record's value; None is a tombstone.
        version: the version in which the value is encoded.
    """

    key: EncodableKey
    value: EncodableValue | None
    version: int = 0


class RecordBlock(Protocol):
    """Many records of one type as one object, which is encoded and replayed faster than the single records.

    It is also a sequence of the single records (`Record`). Encoding and replaying the single records must give the same
    batch and the same state.
    """

    @property
    def size_bytes(self) -> int:
        """The maximum size of the records in a batch, without the batch's header."""
        ...

    def __len__(self) -> int:
        """Returns the number of records."""
        ...

    def __iter__(self) -> Iterator[Record]:
        """Yields the records in order."""
        ...

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch that has room for `size_bytes`. Returns False if a record did not fit."""
        ...


class RunReplay(Protocol):
    """An optional method of a state machine that makes loads faster."""

    def replay_run(self, run: Run, start: int, stop: int, from_offset: int) -> int:
        """Applies the records of uncompressed batches, as `decode` and `replay` do one by one.

        Only called at recovery, with batches that belong to no transaction.

        Args:
            run: pairs (base offset, batch).
            start: the index of the first batch.
            stop: the index after the last batch.
            from_offset: records below this offset were already replayed.

        Returns:
            The number of records that were skipped because their types are unknown.

        Raises:
            Exception: any exception of `decode` or `replay`; the load then fails.
        """
        ...


class BlockReplay(Protocol):
    """The additional method of a state machine that decides blocks of records."""

    def replay_block(self, first_offset: int, producer_id: int, block: Any) -> None:
        """Applies a block right after it was decided, as `replay` does with its records one by one.

        Args:
            first_offset: the offset of the block's first record; the other records follow without gaps.
            producer_id: the producer whose transaction contains the block, or -1.
            block: the `RecordBlock`.
        """
        ...


class StateMachine(Protocol):
    """The state of one shard. Only `replay` and `replay_marker` change durable state; all other state is soft: it is
    lost when the shard is unloaded.

    A machine may also have the methods of `RunReplay` and `BlockReplay`.
    """

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Applies one record. Called right after the decision that wrote the record, and during a load for each record
        of the log.

        Args:
            offset: the record's offset in the shard's log. Offsets may have gaps (compacted logs).
            producer_id: the producer whose transaction contains the record, or -1.
            key: the typed key.
            value: the typed value, or None for a tombstone.
        """
        ...

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Applies the end of a transaction: its records become visible (commit) or are dropped (abort)."""
        ...

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """Returns a record of the log as typed key and value, or None for an unknown record type, which is skipped."""
        ...

    def on_loaded(self) -> None:
        """Arms timers and initialises counters, after the log was replayed to its end."""
        ...

    def on_unloaded(self) -> None:
        """Releases the state that is not in the log, such as timers, when the shard is unloaded. After this call, no
        timer may fire and no response may be completed.

        The runtime fails the parked requests.
        """
        ...


class ShardContext:
    """A state machine's access to its shard: time, timers, responses. The shard creates it for its machine.

    Attributes:
        now: the time of the current round.
        shard: the machine's shard.
    """

    __slots__ = ("now", "shard")

    def __init__(self, shard: Shard[Any], now: Now) -> None:
        self.shard = shard
        self.now = now

    def respond(self, pending: Pending, response: Any) -> None:
        """Completes a parked request when all decisions that this shard has made so far are durable."""
        self.shard.respond(pending, response)

    def schedule(self, deadline_ms: int, timer: ShardTimer) -> Timer:
        """Arms `timer` for `deadline_ms` (monotonic). Its `fire` is a decision like any request."""
        return self.shard.schedule(deadline_ms, timer)

    def in_slices(self, work: Iterator[Outcome | None]) -> None:
        """Runs long work in slices between rounds. Each outcome that the work yields is handled like the outcome of a
        request.
        """
        self.shard.in_slices(work)
