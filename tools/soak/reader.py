"""The reader, which follows every partition and compares its records with the writers' state."""

from __future__ import annotations

import time
from typing import Any

from tests.golden import kwire
from tools.soak.ledger import Ledger
from tools.soak.wire import LostError, RetryError, Worker
from tools.soak.writers import PLAIN, TRANSACTION_PARTITIONS, TRANSACTIONAL, IdempotentWriter, TransactionalWriter

FETCHED_BYTES = 200_000
ABORT = b"\0\0\0\0"  # the key of an abort marker: version and type, both int16


class Reader(Worker):
    """The client that reads `PLAIN` with read_uncommitted and `TRANSACTIONAL` with read_committed.

    Attributes:
        seen: (writer, number of the transaction) -> the partitions where its record was read.
    """

    def __init__(
        self,
        name: str,
        port: int,
        ledger: Ledger,
        plain: dict[int, IdempotentWriter],
        transactional: dict[str, TransactionalWriter],
    ) -> None:
        super().__init__(name, port, ledger)
        self.plain = plain
        self.transactional = transactional
        self.positions: dict[tuple[str, int], int] = {(PLAIN, index): 0 for index in plain}
        self.positions.update({(TRANSACTIONAL, index): 0 for index in range(TRANSACTION_PARTITIONS)})
        self.marks: dict[tuple[str, int], tuple[int, int]] = dict.fromkeys(self.positions, (0, 0))
        self.following = dict.fromkeys(plain, 0)
        self.seen: dict[tuple[str, int], set[int]] = {}
        self.last_numbers: dict[tuple[str, int], int] = {}

    def step(self) -> None:
        """Reads some records of every partition."""
        for topic, isolation_level in ((PLAIN, 0), (TRANSACTIONAL, 1)):
            parts = [
                {"partition": index, "fetch_offset": at, "partition_max_bytes": FETCHED_BYTES}
                for (name, index), at in self.positions.items()
                if name == topic
            ]
            body = {
                "max_wait_ms": 50,
                "min_bytes": 1,
                "max_bytes": 4 * FETCHED_BYTES,
                "isolation_level": isolation_level,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": parts}],
            }
            response = self.call("Fetch", 11, body)
            self.checked("Fetch", response["error_code"])
            codes = []
            for part in response["responses"][0]["partitions"]:
                codes.append(part["error_code"])
                if not part["error_code"]:
                    self.read(topic, part["partition_index"], part)
            for code in codes:
                self.checked("Fetch", code)

    def read(self, topic: str, index: int, part: dict[str, Any]) -> None:
        """Checks one partition of a response."""
        where = f"{topic}-{index}"
        stable, end = part["last_stable_offset"], part["high_watermark"]
        for name, before, now in zip(
            ("last stable offset", "high watermark"), self.marks[topic, index], (stable, end), strict=True
        ):
            if now < before:
                self.ledger.violation("went back", f"{where}: {name} {now} follows {before}")
        self.marks[topic, index] = (stable, end)
        limit = stable if topic == TRANSACTIONAL else end
        aborted = sorted((each["first_offset"], each["producer_id"]) for each in part["aborted_transactions"] or ())
        active: set[int] = set()
        for batch in kwire.read_batches(part["records"]):
            records = batch["records"]
            last = records[-1]["offset"] if records else batch["base_offset"]
            if not batch["crc_ok"]:
                self.ledger.violation("damage", f"{where}: the batch at {batch['base_offset']} has a wrong CRC")
            while aborted and aborted[0][0] <= last:
                active.add(aborted.pop(0)[1])
            if last < self.positions[topic, index]:
                continue
            if last >= limit:
                self.ledger.violation("dirty read", f"{where}: offset {last} is read, readable is up to {limit}")
            self.positions[topic, index] = last + 1
            if batch["control"]:
                if records and records[0]["key"] == ABORT:
                    active.discard(batch["producer_id"])
                continue
            if batch["transactional"] and batch["producer_id"] in active:
                continue
            for record in records:
                if topic == PLAIN:
                    self.plain_record(index, record["offset"], record["value"])
                else:
                    self.transactional_record(index, record["offset"], record["value"])

    def plain_record(self, index: int, offset: int, value: bytes) -> None:
        """Checks that a batch occurs once, in order, at the acknowledged offset."""
        number = int(value)
        expected = self.following[index]
        if number != expected:
            self.ledger.violation("exactly once", f"{PLAIN}-{index}: batch {number} at {offset}, {expected} is next")
        offsets = self.plain[index].offsets
        if number < len(offsets) and offsets[number] != offset:
            self.ledger.violation(
                "offset", f"{PLAIN}-{index}: batch {number} is at {offset}, acknowledged was {offsets[number]}"
            )
        self.following[index] = number + 1
        self.ledger.count("records read")

    def transactional_record(self, index: int, offset: int, value: bytes) -> None:
        """Checks that a writer's records occur once and in order, and that no record belongs to an aborted
        transaction.
        """
        name, _, text = value.decode().rpartition(" ")
        number = int(text)
        where = f"{TRANSACTIONAL}-{index}: record {number} of {name} at {offset}"
        if number <= self.last_numbers.get((name, index), -1):
            self.ledger.violation("exactly once", f"{where} follows {self.last_numbers[name, index]}")
        self.last_numbers[name, index] = number
        self.seen.setdefault((name, number), set()).add(index)
        if self.transactional[name].transactions[number].outcome == "aborted":
            self.ledger.violation("aborted", f"{where} is of an aborted transaction")
        self.ledger.count("records read")

    def drain(self, timeout_s: float) -> None:
        """Reads to the ends of all partitions after the writers have ended."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            try:
                self.step()
            except (LostError, RetryError):
                time.sleep(0.1)
                continue
            if all(self.positions[key] == end == stable for key, (stable, end) in self.marks.items()):
                return
        behind = {
            f"{t}-{i}": (at, self.marks[t, i]) for (t, i), at in self.positions.items() if at != self.marks[t, i][1]
        }
        self.ledger.violation("unreadable", f"position, (last stable offset, end) after {timeout_s:.0f} s: {behind}")

    def check(self) -> None:
        """Compares all records with the writers' state, once every outcome is known."""
        for index, writer in self.plain.items():
            if self.following[index] < len(writer.offsets):
                self.ledger.violation(
                    "lost batch",
                    f"{PLAIN}-{index}: {len(writer.offsets)} batches are acknowledged, {self.following[index]} read",
                )
        for name, producer in self.transactional.items():
            for number, transaction in enumerate(producer.transactions):
                partitions = self.seen.get((name, number), set())
                expected = set(transaction.partitions) if transaction.outcome == "committed" else set()
                if partitions != expected:
                    self.ledger.violation(
                        "atomicity",
                        f"transaction {number} of {name} is {transaction.outcome} and wrote to "
                        f"{sorted(transaction.partitions)}; its records are in {sorted(partitions)}",
                    )
