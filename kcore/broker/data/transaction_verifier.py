"""Asking the transaction coordinator whether a partition belongs to a producer's transaction (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore_ext.runtime.timer_wheel import TimerWheel

TopicPartition = tuple[str, int]
Results = Mapping[TopicPartition, ErrorCode]

# The coordinator cannot be asked now, in Kafka's words; clients retry NOT_ENOUGH_REPLICAS without new metadata.
UNREACHABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# After these codes the client sends the same request again; any other code but NONE denies the transaction.
UNDECIDED = UNREACHABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_ABORTABLE = 11


class ProduceVerifier(Protocol):
    """The transaction coordinator, as far as producing needs it. It calls back: it may be another node's."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        add: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Verifies that partitions are in a transaction, or adds them to it.

        Args:
            transactional_id: whose transaction.
            producer_id: who writes.
            producer_epoch: in which epoch.
            partitions: what is written to.
            add: add those that are missing (Produce v12 and later); otherwise only look.
            done: called once, now or later, with the error code of each partition (NONE for the good ones).
        """
        ...


class VerificationRequest:
    """One question to the coordinator, until it is answered or another takes its place.

    Args:
        desk: who asks.
        transactional_id: whose transaction.
        producer_id: who writes.
        producer_epoch: in which epoch.
        partitions: what is written to.
        add: add, or only look.
        done: called once with the results.
        renew: called before the coordinator is asked once more: an end marker that was written meanwhile has removed
            the guards of the request.
    """

    __slots__ = (
        "add",
        "answered",
        "done",
        "give_up_ms",
        "partition_verifier",
        "partitions",
        "producer_epoch",
        "producer_id",
        "renew",
        "results",
        "transactional_id",
    )

    def __init__(
        self,
        partition_verifier: PartitionVerifier,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        add: bool,
        done: Callable[[Results], None],
        renew: Callable[[], None],
    ) -> None:
        self.partition_verifier = partition_verifier
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.add = add
        self.done = done
        self.renew = renew
        self.answered = False
        self.give_up_ms = -1
        self.results: Results = {}

    @property
    def key(self) -> tuple[str, int, int]:
        """The transactional id, producer id and epoch, of which one request is outstanding at a time."""
        return self.transactional_id, self.producer_id, self.producer_epoch

    def __call__(self) -> None:
        """Asks the coordinator once more, when the timer of a retry fires."""
        if not self.answered:
            self.renew()
            self.partition_verifier.ask(self)

    def arrive(self, results: Results) -> None:
        """The coordinator answered."""
        if not self.answered:
            self.partition_verifier.answered(self, results)

    def finish(self, results: Results) -> None:
        """Hands the results on; whatever comes later is ignored."""
        self.answered = True
        self.done(results)

    def fail(self, code: ErrorCode) -> None:
        """The same error for every partition."""
        self.finish(dict.fromkeys(self.partitions, code))


class PartitionVerifier:
    """Sends verification requests to the coordinator and repeats those that arrive between two transactions.

    One request is outstanding for each transactional id, producer id and epoch. Only the coordinator decides between
    two epochs or two producer ids: a forged request must not fail the rightful producer's.

    Args:
        verifier: the coordinator; None: there is none, and every question is answered COORDINATOR_NOT_AVAILABLE.
        wheel: for retries.
        now: the time of the round.
        backoff_ms: `add.partitions.to.txn.retry.backoff.ms`.
        backoff_max_ms: `add.partitions.to.txn.retry.backoff.max.ms`: no retry later than this.
    """

    __slots__ = ("_backoff_max_ms", "_backoff_ms", "_now", "_outstanding", "_wheel", "verifier")

    def __init__(
        self,
        verifier: ProduceVerifier | None,
        wheel: TimerWheel,
        now: Now,
        *,
        backoff_ms: int = 20,
        backoff_max_ms: int = 100,
    ) -> None:
        self.verifier = verifier
        self._wheel = wheel
        self._now = now
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._outstanding: dict[tuple[str, int, int], VerificationRequest] = {}

    def verify(self, call: VerificationRequest) -> None:
        """Sends a request; an outstanding one with the same ids and epoch fails with NETWORK_EXCEPTION."""
        call.give_up_ms = self._now.now_ms + self._backoff_max_ms
        superseded = self._outstanding.pop(call.key, None)
        if superseded is not None:
            superseded.fail(ErrorCode.NETWORK_EXCEPTION)
        self._outstanding[call.key] = call
        self.ask(call)

    def ask(self, call: VerificationRequest) -> None:
        """Hands a question to the coordinator."""
        if self.verifier is None:
            self._close(call, dict.fromkeys(call.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.verifier.verify(
            call.transactional_id, call.producer_id, call.producer_epoch, call.partitions, call.add, call.arrive
        )

    def answered(self, call: VerificationRequest, results: Results) -> None:
        """Hands an answer on, or asks again a little later if the last transaction is still being completed."""
        if call.add and ErrorCode.CONCURRENT_TRANSACTIONS in results.values() and self._now.now_ms < call.give_up_ms:
            self._wheel.add(self._now.now_ms + self._backoff_ms, call)
            return
        self._close(call, results)

    def _close(self, call: VerificationRequest, results: Results) -> None:
        if self._outstanding.get(call.key) is call:
            del self._outstanding[call.key]
        call.finish(results)


def is_rejection(code: ErrorCode) -> bool:
    """True if the coordinator denied the transaction, False if it confirmed it or could not decide yet."""
    return code is not ErrorCode.NONE and code not in UNDECIDED


def produce_error(code: ErrorCode, version: int) -> tuple[ErrorCode, str | None]:
    """A coordinator's answer as a produce response has it: (code, message)."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "the partition is not in the transaction"
    if code in UNREACHABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS):
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"whether the partition is in the transaction cannot be verified now: {code.name}",
        )
    return code, None
