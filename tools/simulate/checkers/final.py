"""The checkers at the end of a simulation, which decode the log and compare it with the clients' view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.log import LogEngine
from kcore.log.interface import PartitionKey
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.batches import LogRecord, decode
from tools.simulate.checkers.audit import audit
from tools.simulate.history import ACKNOWLEDGED, REFUSED, Write

if TYPE_CHECKING:
    from tools.simulate.world import World

Records = dict[int, LogRecord]


class FinalChecks:
    """The checks that compare the final log with the history.

    Args:
        world: the simulation, whose clients have ended.
        log: a copy of the final log.
    """

    def __init__(self, world: World, log: LogEngine) -> None:
        self._world = world
        self._require = world.checks.require
        self._history = world.history
        self._log = log
        self._records: dict[TopicPartition, Records] = {}
        self._decisions: dict[bytes, bool | None] = {}  # value of a transaction -> committed, aborted, or open

    def run(self) -> None:
        """Runs all checks."""
        findings = self._log.verify(deep=True)
        self._require(not findings, "log format", str(findings[:2]))
        for topic_id, name in self._world.topic_names.items():
            for index in range(self._world.plan.topics[name].partitions):
                self._load(topic_id, TopicPartition(name, index))
        self._check_writes()
        self._check_transactions()
        self._check_copies()
        self._check_shares()
        stepped = any(fault.kind == "clock step" for fault in self._world.plan.faults)
        findings = audit(self._log, self._world.all_topics, across=not stepped)
        self._require(not findings, "audit", "; ".join(str(each) for each in findings[:2]))

    def _load(self, topic_id: bytes, partition: TopicPartition) -> None:
        log = self._log.get(PartitionKey(topic_id, partition.partition))
        records: Records = {}
        self._records[partition] = records
        if log is None:
            return
        open_values: dict[int, list[bytes]] = {}
        for _, batch in log.batches():
            for record in decode(bytes(batch)):
                if record.offset < log.log_start_offset:
                    continue
                self._require(record.offset not in records, "log format", f"{partition}@{record.offset} occurs twice")
                if record.control:
                    for value in open_values.pop(record.producer_id, ()):
                        self._decisions[value] = record.commits
                    continue
                records[record.offset] = record
                if record.transactional:
                    open_values.setdefault(record.producer_id, []).append(record.value or b"")
                    self._decisions[record.value or b""] = None

    # ---- records

    def _check_writes(self) -> None:
        """Checks that every acknowledged record is at its offset, and no record occurs twice in the log.

        Every record in the log must be a record that a client has sent and the server has not refused.
        """
        found_in: dict[bytes, TopicPartition] = {}
        order: dict[tuple[str, TopicPartition], int] = {}
        for partition, records in self._records.items():
            for offset, record in records.items():
                if record.value is None and self._world.plan.topics[partition.topic].compacted:
                    continue  # a tombstone
                value = record.value or b""
                write = self._history.writes.get(value)
                self._require(write is not None, "durability", f"{partition}@{offset}: {value!r} was never sent")
                assert write is not None, "checked above"
                self._require(write.partition == partition, "durability", f"{value!r} is in {partition}")
                self._require(value not in found_in, "duplicates", f"{value!r} is in {partition} twice")
                self._require(write.result != REFUSED, "refused writes", f"{value!r} was refused and is in the log")
                found_in[value] = partition
                if write.transaction is None:
                    number = int(value.rpartition(b":")[2])
                    life = value.rpartition(b":")[0].decode()
                    last = order.get((life, partition), -1)
                    self._require(number > last, "order", f"{partition}: {value!r} comes after number {last}")
                    order[life, partition] = number
        for write in self._history.writes.values():
            if write.result == ACKNOWLEDGED and write.offset >= 0:
                record = self._records[write.partition].get(write.offset)
                if record is None or record.value != (None if write.tombstone else write.value):
                    self._check_missing(write.value, write.partition, write.offset)
            elif write.result == ACKNOWLEDGED and write.value not in found_in and not write.tombstone:
                self._check_missing(write.value, write.partition, write.offset)

    def _check_missing(self, value: bytes, partition: TopicPartition, offset: int) -> None:
        """Checks that retention or compaction was allowed to remove a record that the log lacks."""
        below = self._history.deleted_below.get(partition, 0)
        if offset < below:
            return
        topic, write = self._world.plan.topics[partition.topic], self._history.writes[value]
        if topic.retention_ms is not None:
            age_ms = self._world.node.clock.latest_ms - write.timestamp_ms
            self._require(age_ms >= topic.retention_ms, "retention", f"{value!r} was deleted at most {age_ms} ms old")
            return
        if topic.compacted:
            self._check_compacted(write, offset)
            return
        self._require(False, "durability", f"{value!r} was acknowledged at {partition}@{offset} and is missing")

    def _check_compacted(self, write: Write, offset: int) -> None:
        """Checks that compaction may have removed a record: either a newer record has its key, or the record was
        deleted long enough ago.
        """
        partition = write.partition
        topic = self._world.plan.topics[partition.topic]
        if any(each.key == write.key and each.offset > offset for each in self._records[partition].values()):
            return
        tombstones = [
            each
            for each in self._history.writes.values()
            if each.tombstone and each.key == write.key and each.result != REFUSED and each.partition == partition
        ]
        newer = [each for each in tombstones if each.offset >= offset or each.offset < 0]
        self._require(bool(newer), "compaction", f"{write.value!r} was the last record of {write.key!r} in {partition}")
        retention_ms = topic.config.get("delete.retention.ms")
        age_ms = self._world.node.clock.latest_ms - min(each.timestamp_ms for each in newer)
        self._require(
            retention_ms is not None and age_ms >= int(retention_ms),
            "compaction",
            f"the tombstone of {write.key!r} in {partition} was removed at most {age_ms} ms old",
        )

    # ---- transactions

    def _committed(self, value: bytes) -> bool:
        return self._decisions.get(value) is True

    def _check_transactions(self) -> None:
        """Checks that each transaction is visible as a whole, or not at all."""
        for transaction in self._history.transactions:
            committed = [write.value for write in transaction.writes if self._committed(write.value)]
            if transaction.result == "committed":
                missing = {write.value for write in transaction.writes} - set(committed)
                self._require(
                    not missing, "atomicity", f"{transaction.name} was committed without {sorted(missing)[:3]}"
                )
            elif transaction.result == "aborted" or not transaction.commit_sent:
                self._require(not committed, "atomicity", f"{transaction.name} was not committed, but {committed[:3]}")
            else:
                self._require(
                    len(committed) in (0, len(transaction.writes)),
                    "atomicity",
                    f"{transaction.name} is visible in part: {committed[:3]}",
                )
        undecided = [value for value, decision in self._decisions.items() if decision is None]
        self._require(not undecided, "open transactions", f"{undecided[:3]} have no marker")
        for partition, offset, value in self._history.committed_reads:
            self._require(
                self._committed(value),
                "read committed",
                f"{value!r} was read at {partition}@{offset} with read_committed, and its transaction was aborted",
            )

    def _check_copies(self) -> None:
        """Checks the clients that copy a topic in transactions.

        Each visible record below a copier's committed offset must have exactly one copy, and later records none.
        """
        copies: dict[bytes, list[bytes]] = {}
        for transaction in self._history.transactions:
            for write in transaction.writes:
                if write.value.startswith(b"copy of ") and self._committed(write.value):
                    copies.setdefault(write.value.partition(b" by ")[0], []).append(write.value)
        for source, values in copies.items():
            self._require(len(values) == 1, "exactly once", f"{source!r} has the copies {values}")
        for plan in self._world.plan.clients:
            if plan.kind == "transactional" and plan.options.get("source"):
                self._check_copied(plan.options["source"], plan.options["group"], copies)

    def _check_copied(self, source: str, group: str, copies: dict[bytes, list[bytes]]) -> None:
        for partition, records in self._records.items():
            if partition.topic != source:
                continue
            end = self._world.final_offsets.get((group, partition), -1)
            for offset, record in records.items():
                visible = not record.transactional or self._committed(record.value or b"")
                copied = b"copy of %b@%d" % (record.value or b"", offset) in copies
                if visible:
                    self._require(
                        copied == (offset < end),
                        "exactly once",
                        f"{group} is at {end} of {partition}; copy of {offset}: {copied}",
                    )

    # ---- share groups

    def _check_shares(self) -> None:
        """Checks that a share group has delivered every record until it was accepted, rejected or archived."""
        for group, topic in self._world.plan.share_groups.items():
            for partition, records in self._records.items():
                if partition.topic != topic:
                    continue
                for offset, record in records.items():
                    if record.transactional and not self._committed(record.value or b""):
                        continue
                    seen = self._history.share(group, partition, offset)
                    self._require(
                        seen.accepted_ms >= 0 or seen.rejected or self._is_finished(group, partition, offset),
                        "share records",
                        f"{group} lost {partition}@{offset}: deliveries seen: {seen.acquired}",
                    )

    def _is_finished(self, group: str, partition: TopicPartition, offset: int) -> bool:
        """Returns True if the record is acknowledged or archived in the group's durable state.

        The group archives a record after the maximum number of deliveries.
        """
        return self._world.final_share_state(group, partition, offset)
