"""Clients that commit offsets, write idempotent batches, or run transactions."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from tests.golden import kwire
from tools.soak.ledger import Ledger
from tools.soak.wire import LostError, RetryError, Worker

PLAIN, TRANSACTIONAL = "plain", "transactional"
TRANSACTION_PARTITIONS = 3
OUT_OF_ORDER = 45
# The coordinator aborted the transaction after its timeout, or fenced the producer.
ENDED = frozenset({47, 48, 49, 90, 120})
TRANSACTION_TIMEOUT_S = 60


class OffsetWriter(Worker):
    """A client that commits growing offsets of one group, and reads the committed offset after each lost connection."""

    def __init__(self, name: str, port: int, ledger: Ledger, rng: random.Random) -> None:
        super().__init__(name, port, ledger)
        self.rng = rng
        self.acknowledged = dict.fromkeys(range(4), -1)
        self.sent = dict.fromkeys(range(4), -1)
        self.in_doubt = False

    def lost(self) -> None:
        """Makes the next step read before it writes."""
        self.in_doubt = True

    def step(self) -> None:
        """Commits the next offset of some partitions."""
        if self.in_doubt or self.rng.random() < 0.02:
            self.check()
        offsets = {}
        for index in self.rng.sample(range(4), self.rng.randint(1, 4)):
            self.sent[index] += 1
            offsets[index] = self.sent[index]
        codes = self.commit_offsets(self.name, PLAIN, offsets)
        for (index, offset), code in zip(offsets.items(), codes, strict=True):
            if not code:
                self.acknowledged[index] = offset
                self.ledger.count("offset commits")
        for code in codes:
            self.checked("OffsetCommit", code)

    def check(self) -> None:
        """Checks that every partition has the last acknowledged offset, or one sent after it."""
        for index, offset in self.committed_offsets(self.name, PLAIN, list(range(4))).items():
            if not self.acknowledged[index] <= offset <= self.sent[index]:
                self.ledger.violation(
                    "lost offset",
                    f"{self.name}: partition {index} has offset {offset}; acknowledged was "
                    f"{self.acknowledged[index]}, sent was {self.sent[index]}",
                )
            self.acknowledged[index] = offset
        self.in_doubt = False


class IdempotentWriter(Worker):
    """A client that writes batches to its own partition of the topic `PLAIN`.

    It sends up to five batches at a time, and retries unacknowledged batches. The value of batch n is n as text.

    Attributes:
        index: the number of the partition to which the client writes.
        offsets: the acknowledged offset of each batch.
    """

    def __init__(self, name: str, port: int, ledger: Ledger, rng: random.Random, index: int) -> None:
        super().__init__(name, port, ledger)
        self.rng = rng
        self.index = index
        self.offsets: list[int] = []
        self.producer_id = -1
        self.alone = True

    def lost(self) -> None:
        """Makes the next step send only the first unacknowledged batch.

        The server accepts its sequence, because no earlier request is outstanding.
        """
        self.alone = True

    def step(self) -> None:
        """Sends the next batches."""
        if self.producer_id < 0:
            response = self.call("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 0})
            self.checked("InitProducerId", response["error_code"])
            self.producer_id = response["producer_id"]
        first = len(self.offsets)
        bodies = [self.body(first + position) for position in range(1 if self.alone else self.rng.randint(1, 5))]
        for position, response in enumerate(self.call_all("Produce", 9, bodies)):
            part = response["responses"][0]["partition_responses"][0]
            code = part["error_code"]
            if code == OUT_OF_ORDER and position:
                raise RetryError(code)
            self.checked("Produce", code)
            self.acknowledge(first + position, part["base_offset"])
        self.alone = False

    def body(self, number: int) -> dict[str, object]:
        """Returns the request with batch `number`."""
        records = kwire.batch(
            [(None, b"%d" % number)], producer_id=self.producer_id, producer_epoch=0, base_sequence=number
        )
        return {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": PLAIN, "partition_data": [{"index": self.index, "records": records}]}],
        }

    def acknowledge(self, number: int, offset: int) -> None:
        """Records an acknowledged batch."""
        if self.offsets and offset <= self.offsets[-1]:
            self.ledger.violation(
                "order",
                f"{self.name}: batch {number} is acknowledged at {offset}, the one before at {self.offsets[-1]}",
            )
        self.offsets.append(offset)
        self.ledger.count("idempotent batches")


@dataclass
class Transaction:
    """One transaction.

    Attributes:
        partitions: the partitions to which the transaction writes.
        outcome: "open", "committed" or "aborted"; "unknown" until the committed offset shows the outcome.
    """

    partitions: list[int] = field(default_factory=list)
    outcome: str = "open"


class TransactionalWriter(Worker):
    """A client that runs numbered transactions.

    Each transaction writes a record to some partitions, and commits the transaction's number as the offset of a group.

    Args:
        version: 1 adds partitions and the group first; 2 lets the server add them (KIP-890).

    Attributes:
        transactions: number -> transaction; the value of each of its records is "name number".
    """

    def __init__(self, name: str, port: int, ledger: Ledger, rng: random.Random, version: int) -> None:
        super().__init__(name, port, ledger)
        self.rng = rng
        self.version = version
        self.group = f"group of {name}"
        self.transactions: list[Transaction] = []
        self.identity: tuple[int, int] | None = None
        self.sequences: dict[int, int] = {}
        self.last_identity = (-1, -1)

    def step(self) -> None:
        """Runs one transaction from begin to end; repeats each request until it gets a response."""
        if self.identity is None:
            self.initialise()
        for transaction in self.transactions[-1:]:
            if transaction.outcome == "unknown":
                self.resolve(len(self.transactions) - 1, transaction)
        transaction = Transaction(self.rng.sample(range(TRANSACTION_PARTITIONS), self.rng.randint(1, 3)))
        number, began = len(self.transactions), time.monotonic()
        self.transactions.append(transaction)
        try:
            self.write(number, transaction)
            if self.rng.random() < 0.05:
                transaction.outcome, self.identity = (
                    "aborted",
                    None,
                )  # the next instance aborts the abandoned transaction
                return
            commit = self.rng.random() < 0.7
            transaction.outcome = "unknown" if commit else "aborted"
            self.end(commit)
            transaction.outcome = "committed" if commit else "aborted"
            self.ledger.count(f"transactions v{self.version} {transaction.outcome}")
        except _EndedError as error:
            # No other client has this transactional id: only the timeout may end its transaction.
            if time.monotonic() - began < TRANSACTION_TIMEOUT_S:
                self.ledger.violation("ended early", f"{self.name}: transaction {number} is refused, {error}")
            self.ledger.count("transactions that timed out")
            self.identity = None
            if transaction.outcome == "open":
                transaction.outcome = "aborted"

    def initialise(self) -> None:
        """Initialises the next instance of its transactional id, which aborts an open transaction."""
        response = self.call(
            "InitProducerId",
            4,
            {
                "transactional_id": self.name,
                "transaction_timeout_ms": 1000 * TRANSACTION_TIMEOUT_S,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        )
        self.checked("InitProducerId", response["error_code"])
        self.become((response["producer_id"], response["producer_epoch"]))

    def become(self, identity: tuple[int, int]) -> None:
        """Stores a producer id and epoch. Epochs of one producer id must only grow."""
        if identity[0] == self.last_identity[0] and identity[1] < self.last_identity[1]:
            self.ledger.violation("epoch", f"{self.name}: {identity} follows {self.last_identity}")
        if identity != self.identity:
            self.sequences = {}
        self.identity = self.last_identity = identity

    def write(self, number: int, transaction: Transaction) -> None:
        """Sends all records of a transaction and its offset."""
        assert self.identity is not None
        producer_id, epoch = self.identity
        who = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}
        if self.version == 1:
            topics = [{"name": TRANSACTIONAL, "partitions": transaction.partitions}]
            added = {f"v3_and_below_{key}": value for key, value in {**who, "topics": topics}.items()}
            self.until_response("AddPartitionsToTxn", 3, added, _partition_codes)
            self.until_response("AddOffsetsToTxn", 3, {**who, "group_id": self.group}, _top_code)
        for index in transaction.partitions:
            sequence = self.sequences.get(index, 0)
            records = kwire.batch(
                [(None, f"{self.name} {number}".encode())],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
            data = [{"name": TRANSACTIONAL, "partition_data": [{"index": index, "records": records}]}]
            body = {"transactional_id": self.name, "acks": -1, "timeout_ms": 30_000, "topic_data": data}
            self.until_response("Produce", 11 if self.version == 1 else 12, body, _produce_codes)
            self.sequences[index] = sequence + 1
        parts = [{"partition_index": 0, "committed_offset": number}]
        offsets = {**who, "group_id": self.group, "topics": [{"name": PLAIN, "partitions": parts}]}
        self.until_response("TxnOffsetCommit", 3 if self.version == 1 else 5, offsets, _offset_codes)

    def end(self, commit: bool) -> None:
        """Ends the transaction."""
        assert self.identity is not None
        body = {
            "transactional_id": self.name,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "committed": commit,
        }
        response = self.until_response("EndTxn", 4 if self.version == 1 else 5, body, _top_code)
        if self.version == 2:
            self.become((response["producer_id"], response["producer_epoch"]))

    def resolve(self, number: int, transaction: Transaction) -> None:
        """Determines the outcome of a transaction whose EndTxn received no response.

        Every transaction commits its own number as the group's offset. So the transaction was committed if `number` is
        now the group's committed offset.

        Args:
            number: the number of the transaction.
            transaction: the transaction, whose `outcome` is set.
        """
        offset = self.committed_offsets(self.group, PLAIN, [0], stable=True)[0]
        transaction.outcome = "committed" if offset == number else "aborted"
        self.ledger.count(f"transactions resolved {transaction.outcome}")

    def expected_offset(self) -> int:
        """Returns the number of the last committed transaction, or -1 if there is none."""
        numbers = [number for number, each in enumerate(self.transactions) if each.outcome == "committed"]
        return numbers[-1] if numbers else -1

    def until_response(self, api: str, version: int, body: dict, codes_of: object) -> dict:  # type: ignore[type-arg]
        """Repeats a request until the server accepts it.

        Raises:
            _EndedError: the coordinator has ended the transaction.
            LostError: the run is over.
        """
        while not self.ledger.over.is_set():
            try:
                response = self.call(api, version, body)
                for code in codes_of(response):  # type: ignore[operator]
                    if self.checked(api, code, ENDED):
                        raise _EndedError(f"{api}: {code}")
                self.ledger.succeeded(self.name)
                return response
            except (LostError, RetryError):
                self.ledger.over.wait(0.02)
        raise LostError


class _EndedError(Exception):
    """The coordinator ended the transaction."""


def _top_code(response: dict) -> list[int]:  # type: ignore[type-arg]
    return [response["error_code"]]


def _partition_codes(response: dict) -> list[int]:  # type: ignore[type-arg]
    topics = response["results_by_topic_v3_and_below"]
    return [part["partition_error_code"] for topic in topics for part in topic["results_by_partition"]]


def _produce_codes(response: dict) -> list[int]:  # type: ignore[type-arg]
    return [part["error_code"] for topic in response["responses"] for part in topic["partition_responses"]]


def _offset_codes(response: dict) -> list[int]:  # type: ignore[type-arg]
    return [part["error_code"] for topic in response["topics"] for part in topic["partitions"]]
