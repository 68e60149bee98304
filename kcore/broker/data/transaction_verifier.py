"""Verification by the transaction coordinator that a partition belongs to a producer's transaction (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import PartitionTuple

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore_ext.runtime.timer_wheel import TimerWheel

Results = Mapping[PartitionTuple, ErrorCode]

# The coordinator cannot verify now. As in Kafka, clients get NOT_ENOUGH_REPLICAS and retry without new metadata.
UNREACHABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# After these codes the client sends the same request again. Any other code except NONE denies the transaction.
UNDECIDED = UNREACHABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_ABORTABLE = 11


class ProduceVerifier(Protocol):
    """The part of the transaction coordinator that Produce needs. It returns its results by a callback, because it may
    be on another node.
    """

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[PartitionTuple],
        add: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Verifies that partitions are in a transaction, or adds them to it.

        Args:
            transactional_id: the transaction's id.
            producer_id: the producer's id.
            producer_epoch: the producer's epoch.
            partitions: the partitions of the Produce request.
            add: True to add missing partitions to the transaction (Produce v12 and later); False only to verify them.
            done: called once, before or after this method returns, with the error code of each partition (NONE if
                verified).
        """
        ...


class VerificationRequest:
    """One request to the coordinator, outstanding until it has results or another request supersedes it.

    Args:
        partition_verifier: sends the request.
        transactional_id: the transaction's id.
        producer_id: the producer's id.
        producer_epoch: the producer's epoch.
        partitions: the partitions of the Produce request.
        add: True to add missing partitions to the transaction; False only to verify them.
        done: called once with the results.
        renew: called before each retry. It sets the guards of the request again, because the end marker of the last
            transaction may have removed them.
    """

    __slots__ = (
        "add",
        "completed",
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
        partitions: list[PartitionTuple],
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
        self.completed = False
        self.give_up_ms = -1
        self.results: Results = {}

    @property
    def key(self) -> tuple[str, int, int]:
        """The transactional id, producer id and epoch; each such key has at most one outstanding request."""
        return self.transactional_id, self.producer_id, self.producer_epoch

    def __call__(self) -> None:
        """Sends the request again when the timer of a retry fires."""
        if not self.completed:
            self.renew()
            self.partition_verifier.send(self)

    def arrive(self, results: Results) -> None:
        """Accepts the coordinator's results, unless the request is already finished."""
        if not self.completed:
            self.partition_verifier.complete(self, results)

    def finish(self, results: Results) -> None:
        """Passes the results to `done`; later results are ignored."""
        self.completed = True
        self.done(results)

    def fail(self, code: ErrorCode) -> None:
        """Finishes the request with the same error for every partition."""
        self.finish(dict.fromkeys(self.partitions, code))


class PartitionVerifier:
    """The sender of verification requests to the coordinator. It repeats a request while the coordinator is still
    completing the producer's last transaction.

    Each combination of transactional id, producer id and epoch has at most one outstanding request. Requests with
    different epochs or producer ids do not supersede each other. So a forged request cannot make a request of the real
    producer fail. Only the coordinator decides which of them is valid.

    Args:
        verifier: the coordinator; None: every request fails with COORDINATOR_NOT_AVAILABLE.
        wheel: timers of retries.
        now: the clock, which the driver reads once for each round of requests.
        backoff_ms: `add.partitions.to.txn.retry.backoff.ms`.
        backoff_max_ms: `add.partitions.to.txn.retry.backoff.max.ms`: no retry after this time.
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

    def verify(self, request: VerificationRequest) -> None:
        """Sends a request. An outstanding request with the same ids and epoch fails with NETWORK_EXCEPTION."""
        request.give_up_ms = self._now.now_ms + self._backoff_max_ms
        superseded = self._outstanding.get(request.key)
        # A request stays outstanding if there is no memory for its results. An exception may leave a completed request.
        if superseded is not None and not superseded.completed:
            superseded.fail(ErrorCode.NETWORK_EXCEPTION)
        self._outstanding[request.key] = request
        self.send(request)

    def send(self, request: VerificationRequest) -> None:
        """Passes a request to the coordinator."""
        if self.verifier is None:
            self._close(request, dict.fromkeys(request.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.verifier.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.partitions,
            request.add,
            request.arrive,
        )

    def complete(self, request: VerificationRequest, results: Results) -> None:
        """Passes the results on, or retries after `backoff_ms` if the last transaction is still being completed."""
        if (
            request.add
            and ErrorCode.CONCURRENT_TRANSACTIONS in results.values()
            and self._now.now_ms < request.give_up_ms
        ):
            self._wheel.add(self._now.now_ms + self._backoff_ms, request)
            return
        self._close(request, results)

    def _close(self, request: VerificationRequest, results: Results) -> None:
        if self._outstanding.get(request.key) is request:
            del self._outstanding[request.key]
        request.finish(results)


def is_rejection(code: ErrorCode) -> bool:
    """Returns True if the coordinator rejected the transaction. After an error in `UNDECIDED`, it has not decided."""
    return code is not ErrorCode.NONE and code not in UNDECIDED


def produce_error(code: ErrorCode, version: int) -> tuple[ErrorCode, str | None]:
    """Translates the coordinator's error code for a Produce response; returns the code and the message."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "the partition is not in the transaction"
    if code in UNREACHABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS):
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the coordinator cannot verify now that the partition is in the transaction: {code.name}",
        )
    return code, None
