"""What a state machine is to the runtime, and what the runtime is to a state machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kcore_ext.runtime.outcome import Outcome

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.pending import Pending
    from kcore.runtime.shard import Shard, ShardTimer
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
        """Its bytes as they stand in the log."""
        ...


class EncodableValue(Protocol):
    """The value of a record."""

    def encode_value(self, version: int) -> bytes:
        """Its bytes as they stand in the log, with the version in front."""
        ...


class Record(NamedTuple):
    """A durable fact, typed: what `decide` returns, what `replay` takes.

    Attributes:
        key: what the fact is about.
        value: the fact; None is a tombstone.
        version: the version the value is written in.
    """

    key: EncodableKey
    value: EncodableValue | None
    version: int = 0


class RecordBlock(Protocol):
    """Many facts of one kind as one object, which writes and replays itself faster than they would one by one.

    It is a sequence of the `Record`s that it stands for, and they are the definition of what it does: whoever encodes
    and replays them one after the other gets the same batch and the same state.
    """

    @property
    def size_bytes(self) -> int:
        """What the records take in a batch at most, without the batch's header."""
        ...

    def __len__(self) -> int:
        """How many records it stands for."""
        ...

    def __iter__(self) -> Iterator[Record]:
        """The records, in their order."""
        ...

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch with room for `size_bytes`; False if one did not fit."""
        ...


class RunReplay(Protocol):
    """What a machine may have to be loaded faster."""

    def replay_run(self, run: Run, start: int, stop: int, from_offset: int) -> int:
        """Applies the records of uncompressed batches, as `decode` and `replay` do one by one.

        Only called at recovery, with batches that belong to no transaction.

        Args:
            run: pairs (base offset, batch).
            start: the index of the first batch.
            stop: the index behind the last.
            from_offset: records below it were replayed before.

        Returns:
            How many of the records were passed over because their types are not known.

        Raises:
            Exception: whatever `decode` and `replay` raise; the load has failed then.
        """
        ...


class BlockReplay(Protocol):
    """What a machine has that decides blocks of records."""

    def replay_block(self, first_offset: int, producer_id: int, block: Any) -> None:
        """Applies a block that it decided just now, as `replay` does with its records one by one.

        Args:
            first_offset: the offset of its first record; the others follow.
            producer_id: -1, or the producer in whose transaction it stands.
            block: the `RecordBlock`.
        """
        ...


class StateMachine(Protocol):
    """The state of one shard. `replay` alone changes what is durable; everything else in it is soft.

    A machine may have `replay_run` too (see `RunReplay`), and `replay_block` (see `BlockReplay`).
    """

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Applies one fact. Called live right after it was decided, and at recovery with what the log holds.

        Args:
            offset: the record's offset in the shard's log. Offsets may have gaps (compacted logs).
            producer_id: -1, or the producer in whose transaction it stands.
            key: the typed key.
            value: the typed value, or None for a tombstone.
        """
        ...

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Applies the end of a transaction: its facts become visible, or go."""
        ...

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """A record of the log, typed; None for a record type that this machine does not know (it is skipped)."""
        ...

    def on_loaded(self) -> None:
        """The log was replayed to its end: arm timers, count."""
        ...

    def on_unloaded(self) -> None:
        """The shard goes: nothing may fire or answer from here on. The runtime fails who is parked."""
        ...


class ShardContext:
    """A state machine's hands: time, timers, answers. Made by the shard for its machine.

    Attributes:
        now: the time of the present round.
        shard: the shard this machine lives in.
    """

    __slots__ = ("now", "shard")

    def __init__(self, shard: Shard[Any], now: Now) -> None:
        self.shard = shard
        self.now = now

    def answer(self, pending: Pending, response: Any) -> None:
        """Answers a parked request, once everything that this shard decided up to now is durable."""
        self.shard.answer(pending, response)

    def schedule(self, deadline_ms: int, timer: ShardTimer) -> Timer:
        """Arms `timer` for `deadline_ms` (monotonic). Its `fire` is a decision like any request."""
        return self.shard.schedule(deadline_ms, timer)

    def in_slices(self, work: Iterator[Outcome | None]) -> None:
        """Runs long work in bounded pieces between rounds: each item it yields is decided as a request's would be."""
        self.shard.in_slices(work)
