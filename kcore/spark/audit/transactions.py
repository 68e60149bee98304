"""Checks of transactional ids in `__transaction_state`: only legal transitions occur (KIP-98, KIP-360, KIP-890).

The engine's own table defines the legal transitions. The check also emits observations to compare with other
partitions: the decision of each transaction, and the final state of each id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kcore.protocol.records.transaction_log import TransactionLogKey
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.finding import AuditObservation, Evidence
from kcore.spark.events.event import EventRow
from kcore.transaction.states import COMPLETION, DEAD, EMPTY, NAMES, ONGOING, PREPARE_COMMIT, PREVIOUS
from kcore.transaction.transaction import LAST_EPOCH, NO_PRODUCER_ID, Transaction

SAMPLE: Final = 20


class _Id(NamedTuple):
    transaction: Transaction
    evidence: Evidence
    prepared: _Prepared | None


class _Prepared(NamedTuple):
    """A decided transaction that is not complete yet, and the position of its decision."""

    transaction: Transaction
    evidence: Evidence


class Transitions(Check):
    """The check of every transition of every transactional id."""

    __slots__ = ("_ids", "sample")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.sample: list[str] = []  # some ids: their hashes imply the partition count of the topic
        self._ids: dict[str, _Id] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {TransactionLogKey: self._see}

    def forget(self) -> None:
        """Implements `Check.forget`. Emits the decisions so far before it drops them, because they remain valid."""
        for transactional_id, state in self._ids.items():
            if state.prepared is not None:
                self._decided(transactional_id, state.prepared, None)
        self._ids.clear()

    def end(self) -> None:
        """Implements `Check.end`."""
        for transactional_id, state in self._ids.items():
            if state.prepared is not None:
                self._decided(transactional_id, state.prepared, None)
            self._ended(transactional_id, state.transaction, state.evidence)

    def _see(self, row: EventRow, key: TransactionLogKey, value: Transaction | None) -> None:
        transactional_id = key.transactional_id
        current = self.log.evidence_of(row)
        before = self._ids.get(transactional_id)
        if before is None and len(self.sample) < SAMPLE:
            self.sample.append(transactional_id)
        if value is None:
            if before is not None:
                if before.transaction.state not in PREVIOUS[DEAD]:
                    self._skipped(transactional_id, before, current, "was removed")
                if before.prepared is not None:
                    self._decided(transactional_id, before.prepared, None)
                del self._ids[transactional_id]
            return
        if before is None:
            if self.log.history.is_whole and value.state is not EMPTY:
                self._skipped(transactional_id, None, current, f"began as {NAMES[value.state]}")
        elif before.transaction.state not in PREVIOUS[value.state]:
            self._skipped(transactional_id, before, current, f"came to {NAMES[value.state]}")
        else:
            self._compare(transactional_id, before, value, current)
        prepared = None if before is None else before.prepared
        completes = COMPLETION.get(prepared.transaction.state) is value.state if prepared is not None else False
        if prepared is not None:
            self._decided(transactional_id, prepared, current if completes else None)
        elif value.state in COMPLETION.values():
            self._unplaced(transactional_id, value, current)
        prepared = _Prepared(value, current) if value.state in COMPLETION else None
        self._ids[transactional_id] = _Id(value, current, prepared)

    def _skipped(self, transactional_id: str, before: _Id | None, current: Evidence, transition: str) -> None:
        evidence = [current] if before is None else [before.evidence, current]
        since = "" if before is None else f" while it was in {NAMES[before.transaction.state]}"
        self.log.report(
            "illegal-transition",
            evidence,
            f"{transactional_id} {transition}{since}.",
            transactional_id=transactional_id,
        )

    def _compare(self, transactional_id: str, before: _Id, value: Transaction, current: Evidence) -> None:
        """Checks producer, epoch and partitions of a legal transition."""
        was = before.transaction
        evidence = [before.evidence, current]
        if value.producer_id != was.producer_id:
            rotated = value.producer_id == was.next_producer_id or (
                value.state is EMPTY and was.producer_epoch >= LAST_EPOCH
            )
            if not rotated:
                self.log.report(
                    "producer-id-changed",
                    evidence,
                    f"{transactional_id} changed from producer id {was.producer_id} in epoch {was.producer_epoch} to "
                    f"producer id {value.producer_id}.",
                    transactional_id=transactional_id,
                    producer_id=value.producer_id,
                )
        elif value.producer_epoch < was.producer_epoch:
            self.log.report(
                "producer-epoch-decreased",
                evidence,
                f"The producer epoch of {transactional_id} fell from {was.producer_epoch} to {value.producer_epoch}.",
                transactional_id=transactional_id,
                producer_id=value.producer_id,
            )
        if was.state is ONGOING:
            had, has = frozenset(was.topic_partitions()), frozenset(value.topic_partitions())
            wrong = had - has if value.state is ONGOING else had ^ has
            if wrong:
                topic, partition = min(wrong)
                change = "lost" if (topic, partition) in had else "gained"
                self.log.report(
                    "transaction-partitions-lost",
                    evidence,
                    f"The transaction of {transactional_id} {change} {topic}-{partition} in its transition to "
                    f"{NAMES[value.state]}.",
                    transactional_id=transactional_id,
                    producer_id=value.producer_id,
                    about=(topic, partition),
                )

    # ---- observations

    def _decided(self, transactional_id: str, prepared: _Prepared, end: Evidence | None) -> None:
        transaction, evidence = prepared
        for topic, partition in sorted(transaction.topic_partitions()):
            self.log.emit(
                AuditObservation(
                    "decision",
                    transaction.producer_id,
                    topic,
                    partition,
                    evidence.timestamp_ms,
                    transaction.producer_epoch,
                    *evidence[:3],
                    -1 if end is None else end.offset,
                    -1 if end is None else end.timestamp_ms,
                    transactional_id,
                    commit=transaction.state is PREPARE_COMMIT,
                )
            )

    def _unplaced(self, transactional_id: str, value: Transaction, current: Evidence) -> None:
        """Emits an `AuditObservation` of a decision whose record compaction has removed. Its partitions are unknown."""
        commit = value.state is COMPLETION[PREPARE_COMMIT]
        epoch = value.producer_epoch
        self.log.emit(
            AuditObservation(
                "decision",
                value.producer_id,
                None,
                -1,
                current.timestamp_ms,
                epoch,
                *current[:3],
                current.offset,
                current.timestamp_ms,
                transactional_id,
                commit=commit,
            )
        )

    def _ended(self, transactional_id: str, value: Transaction, current: Evidence) -> None:
        partitions = tuple(f"{topic}-{partition}" for topic, partition in sorted(value.topic_partitions()))
        observation = AuditObservation(
            "id",
            value.producer_id,
            None,
            -1,
            current.timestamp_ms,
            value.producer_epoch,
            *current[:3],
            end_ms=value.start_ms,
            transactional_id=transactional_id,
            state=NAMES[value.state],
            timeout_ms=value.timeout_ms,
            partitions=partitions,
        )
        self.log.emit(observation)
        if value.previous_producer_id not in (value.producer_id, NO_PRODUCER_ID):
            # Any open transaction of the previous producer id has ended.
            self.log.emit(
                observation._replace(
                    producer_id=value.previous_producer_id, producer_epoch=-1, state="Replaced", partitions=()
                )
            )
