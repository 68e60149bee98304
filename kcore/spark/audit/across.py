"""Compares the observations of one producer in several logs: transaction decisions, markers and open transactions.

An observation of a share group has a number below -1 in place of the producer id. `share_groups` compares these
observations.

The observations of a producer arrive in the order of `SORTED`. Its transactional ids come first. Its decisions, markers
and open transactions follow, sorted by the partition that they concern and then by time. The comparison keeps only the
unmatched observations of the current producer in memory.

A marker is written after its decision and before the completion of its transaction, so decisions and markers alternate
in each partition. However, brokers' clocks may differ, so timestamps may show another order. Therefore, the comparison
counts markers and decisions for each partition and outcome (`Outcome`). It reports a decision without a marker only if
the partition has fewer markers than decisions of this outcome. It reports a marker without a decision only if the
partition has more markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from kcore.counts import add_count
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.protocol.topic_partition import PartitionTuple
from kcore.spark.audit.finding import AuditObservation, Finding, finding
from kcore.spark.audit.logs import Logs
from kcore.spark.audit.share_groups import compare_share
from kcore.transaction.states import COMPLETION, NAMES, ONGOING

PREPARED: Final = frozenset(NAMES[state] for state in COMPLETION)
OPEN: Final = PREPARED | {NAMES[ONGOING]}
MAX_TIMEOUT_MS: Final = 900_000
"""The timeout in ms that the audit assumes if the logs do not show a transaction's timeout.

This is Kafka's default for `transaction.max.timeout.ms`, the upper limit of transaction timeouts.
"""

SORTED: Final = (
    "producer_id",
    "target_topic",
    "target_partition",
    "timestamp_ms",
    "kind",
    "topic",
    "partition",
    "offset",
)
"""The columns by which observations (`AuditObservation`) are sorted, nulls first.

If timestamps are equal, decisions precede markers.
"""

Outcome = tuple[int, bool]
"""The outcome of a transaction: the producer epoch, and True for a commit or False for an abort.

A decision and its marker have equal outcomes.
"""


def sort_key(seen: AuditObservation) -> tuple[object, ...]:
    """Returns the sort key of `SORTED`, for sorting without Spark."""
    return (
        seen.producer_id, seen.target_topic or "", seen.target_partition, seen.timestamp_ms, seen.kind, seen.topic,
        seen.partition, seen.offset,
    )  # fmt: skip


def compare(observations: Iterable[AuditObservation], logs: Logs) -> Iterator[Finding]:
    """Yields the findings that follow from a comparison of several partitions.

    Args:
        observations: what the audits of single logs have observed, in the order of `SORTED`.
        logs: the completeness of each log that the audit has read.
    """
    for producer_id, of_producer in groupby(observations, key=lambda observation: observation.producer_id):
        if producer_id >= 0:
            yield from _Producer(producer_id, logs).findings(of_producer)
        elif producer_id < -1:
            yield from compare_share(of_producer, logs)


class _Producer:
    """The comparison of what different partitions show about one producer."""

    def __init__(self, producer_id: int, logs: Logs) -> None:
        self._producer_id = producer_id
        self._logs = logs
        self._ids: list[AuditObservation] = []
        self._unplaced: set[Outcome] = set()  # completed transactions whose decision record is missing
        self._unmarked: set[tuple[str | None, int]] = set()  # decisions that wait for a marker: (id, offset)

    def findings(self, observations: Iterable[AuditObservation]) -> Iterator[Finding]:
        """Yields the findings about this producer.

        Args:
            observations: all observations (`AuditObservation`) of the producer, in the order of `SORTED`.
        """
        for topic_partition, of_partition in groupby(
            observations, key=lambda observation: (observation.target_topic, observation.target_partition)
        ):
            topic, partition = topic_partition
            if topic is not None:
                yield from self._check_partition((topic, partition), of_partition)
                continue
            for observation in of_partition:
                if observation.kind == "id":
                    self._ids.append(observation)
                else:
                    self._unplaced.add((observation.producer_epoch, observation.commit))
            yield from self._shared()
        for observation in self._ids:
            yield from self._unfinished(observation)

    # ---- ids

    def _shared(self) -> Iterator[Finding]:
        current = [observation for observation in self._ids if observation.state != "Replaced"]
        for another in current[1:]:
            yield finding(
                "producer-id-shared",
                [current[0].evidence, another.evidence],
                f"{current[0].transactional_id} and {another.transactional_id} share producer id {self._producer_id}.",
                transactional_id=another.transactional_id,
                producer_id=self._producer_id,
            )

    def _unfinished(self, observation: AuditObservation) -> Iterator[Finding]:
        """Yields findings on a transaction that is open, or decided but not complete, at the end of the log."""
        logs = self._logs
        if observation.state == NAMES[ONGOING]:
            age_ms = logs.now_ms - (observation.end_ms if observation.end_ms >= 0 else observation.timestamp_ms)
            if age_ms > observation.timeout_ms + logs.grace_ms:
                sentence = f"The transaction of {observation.transactional_id} has been open for {age_ms} ms; its " \
                    f"timeout is {observation.timeout_ms} ms."  # fmt: skip
                yield self._of_id("transaction-hangs", observation, sentence)
        elif observation.state in PREPARED:
            age_ms = logs.now_ms - observation.timestamp_ms
            if age_ms <= logs.grace_ms:
                return
            waits = (observation.transactional_id, observation.offset) in self._unmarked
            sentence = f"{observation.transactional_id} has been in {observation.state} for {age_ms} ms"
            if waits and age_ms <= observation.timeout_ms:
                yield self._of_id("transaction-waits", observation, f"{sentence} and waits for markers.")
            elif waits:
                yield self._of_id(
                    "transaction-not-completed", observation, f"{sentence}; its timeout is {observation.timeout_ms} ms."
                )
            else:
                yield self._of_id("transaction-not-completed", observation, f"{sentence} with all markers written.")

    def _of_id(self, kind: str, observation: AuditObservation, sentence: str) -> Finding:
        return finding(
            kind,
            [observation.evidence],
            sentence,
            transactional_id=observation.transactional_id,
            producer_id=self._producer_id,
        )

    # ---- one partition

    def _check_partition(
        self, topic_partition: PartitionTuple, observations: Iterable[AuditObservation]
    ) -> Iterator[Finding]:
        missing: list[AuditObservation] = []  # decisions without a following marker
        extra: list[AuditObservation] = []  # markers without a preceding decision
        balance: dict[Outcome, int] = {}  # markers minus decisions; each transaction has an epoch of its own (KIP-890)
        still_open: list[AuditObservation] = []
        decision: AuditObservation | None = None
        matched = False
        for observation in observations:
            outcome = (observation.producer_epoch, observation.commit)
            if observation.kind == "decision":
                if decision is not None and not matched:
                    missing.append(decision)
                decision, matched = observation, False
                add_count(balance, outcome, -1)
            elif observation.kind == "marker":
                add_count(balance, outcome, 1)
                if decision is not None and (decision.producer_epoch, decision.commit) == outcome:
                    matched = True  # may also be a repetition after a failover
                else:
                    extra.append(observation)
            else:
                still_open.append(observation)
        if decision is not None and not matched:
            missing.append(decision)
        missing = [entry for entry in missing if self._take_surplus(balance, entry, -1)]
        extra = [entry for entry in extra if self._take_surplus(balance, entry, 1)]
        yield from self._unmatched_findings(topic_partition, missing, extra)
        for observation in still_open:
            yield from self._open(topic_partition, observation, missing)

    @staticmethod
    def _take_surplus(balance: dict[Outcome, int], observation: AuditObservation, sign: int) -> bool:
        """Returns True if the outcome of an observation has surplus markers or decisions, and counts one of them off.

        Args:
            balance: outcome -> the number of its markers minus the number of its decisions.
            observation: a marker or a decision without a counterpart.
            sign: 1 for surplus markers, -1 for surplus decisions.
        """
        outcome = (observation.producer_epoch, observation.commit)
        if balance.get(outcome, 0) * sign <= 0:
            return False
        add_count(balance, outcome, -sign)
        return True

    def _unmatched_findings(
        self, topic_partition: PartitionTuple, missing: list[AuditObservation], extra: list[AuditObservation]
    ) -> Iterator[Finding]:
        """Yields findings on unmatched decisions and markers.

        Args:
            topic_partition: the partition that the decisions and markers concern.
            missing: the decisions without a marker. Afterwards, this list contains only the decisions that were
                reported as `marker-missing`.
            extra: the markers without a decision.
        """
        where = f"{topic_partition[0]}-{topic_partition[1]}"
        unmatched = []
        for decision in missing:
            marker = next(
                (observation for observation in extra if observation.producer_epoch == decision.producer_epoch), None
            )
            if marker is not None:
                extra.remove(marker)
                yield finding(
                    "marker-contradicts-decision",
                    [decision.evidence, marker.evidence],
                    f"The transaction of {decision.transactional_id} was {_done(decision)}, but its marker in {where} "
                    f"says that it was {_done(marker)}.",
                    transactional_id=decision.transactional_id,
                    producer_id=self._producer_id,
                    about=topic_partition,
                )
            elif decision.end_offset < 0:
                self._unmarked.add((decision.transactional_id, decision.offset))
            elif self._should_have_marker(topic_partition, decision):
                unmatched.append(decision)
                yield finding(
                    "marker-missing",
                    [decision.evidence],
                    f"The transaction of {decision.transactional_id} was {_done(decision)} and completed, but has no "
                    f"marker in {where}.",
                    transactional_id=decision.transactional_id,
                    producer_id=self._producer_id,
                    about=topic_partition,
                )
        missing[:] = unmatched
        for marker in extra:
            if not self._should_have_decision(topic_partition, marker):
                continue
            yield finding(
                "marker-without-transaction",
                [marker.evidence],
                f"A marker in {where} ends a transaction of producer {self._producer_id} in epoch "
                f"{marker.producer_epoch} as {_done(marker)}, but no such transaction exists.",
                producer_id=self._producer_id,
                about=topic_partition,
            )

    def _should_have_marker(self, topic_partition: PartitionTuple, decision: AuditObservation) -> bool:
        span = self._logs.spans.get(topic_partition)
        if span is None or decision.timestamp_ms < span.since_ms:
            return False
        return self._expects_record_after(topic_partition, decision.end_ms)

    def _should_have_decision(self, topic_partition: PartitionTuple, marker: AuditObservation) -> bool:
        logs = self._logs
        if logs.decisions_since_ms is None or (marker.producer_epoch, marker.commit) in self._unplaced:
            return False
        # The logs may have been copied one after the other: this log may contain markers of later decisions.
        until_ms = logs.now_ms if topic_partition[0] == CONSUMER_OFFSETS else logs.decisions_until_ms
        for observation in self._ids:
            span = logs.spans.get((observation.topic, observation.partition))
            until_ms = until_ms if span is None else min(until_ms, span.newest_ms)
        return logs.decisions_since_ms <= marker.timestamp_ms <= until_ms

    def _expects_record_after(self, topic_partition: PartitionTuple, since_ms: int) -> bool:
        """Returns True if the audit expects a record of a partition after `since_ms`.

        The audit expects the record if the log has any record after `since_ms`, or if the grace period after
        `since_ms` is over.
        """
        span = self._logs.spans.get(topic_partition)
        late = self._logs.now_ms - since_ms > self._logs.grace_ms
        return late or (span is not None and span.newest_ms > since_ms)

    # ---- data that is open at the end

    def _open(
        self, topic_partition: PartitionTuple, observation: AuditObservation, missing: list[AuditObservation]
    ) -> Iterator[Finding]:
        logs = self._logs
        if any(one.producer_epoch >= observation.producer_epoch for one in missing):
            return  # reported already
        owners = [one for one in self._ids if one.state != "Replaced"]
        owner = owners[0] if owners else next(iter(self._ids), None)
        if owner is None:
            yield from self._orphan(topic_partition, observation)
            return
        name = f"{topic_partition[0]}-{topic_partition[1]}"
        owner_id, since = owner.transactional_id, f"the transaction of producer {self._producer_id} in {name}"
        under_way = owner.state in PREPARED or (
            owner.state == NAMES[ONGOING] and owner.producer_epoch <= observation.producer_epoch
        )
        if under_way and name in owner.partitions:
            return
        if under_way:
            txn_log = logs.spans.get((owner.topic, owner.partition))
            if txn_log is not None and observation.timestamp_ms < txn_log.newest_ms:
                sentence = f"{since} is open, but the transaction of {owner_id} does not include {name}."
                yield self._of_open("data-outside-transaction", topic_partition, observation, owner, sentence)
        elif self._expects_record_after(topic_partition, owner.timestamp_ms):
            sentence = f"{since} is open, but {owner_id} is in {owner.state}, so the transaction has ended."
            yield self._of_open("data-without-marker", topic_partition, observation, owner, sentence)

    def _orphan(self, topic_partition: PartitionTuple, observation: AuditObservation) -> Iterator[Finding]:
        """Yields findings on an open transaction of a producer id that belongs to no transactional id."""
        logs = self._logs
        since = f"the transaction of producer {self._producer_id} in {topic_partition[0]}-{topic_partition[1]}"
        if logs.decisions_since_ms is None:
            age_ms = logs.now_ms - observation.timestamp_ms
            if age_ms > MAX_TIMEOUT_MS + logs.grace_ms:
                sentence = f"{since} has been open for {age_ms} ms."
                yield self._of_open("transaction-open-long", topic_partition, observation, None, sentence)
        elif not logs.knows_ids or logs.now_ms - observation.timestamp_ms <= logs.grace_ms:
            return
        elif observation.timestamp_ms - logs.grace_ms >= logs.decisions_since_ms:  # the log would have its start
            sentence = f"{since} is open, but no transactional id has this producer id."
            yield self._of_open("data-without-transaction", topic_partition, observation, None, sentence)

    def _of_open(
        self,
        kind: str,
        topic_partition: PartitionTuple,
        observation: AuditObservation,
        owner: AuditObservation | None,
        sentence: str,
    ) -> Finding:
        evidence = [observation.evidence] if owner is None else [owner.evidence, observation.evidence]
        return finding(
            kind,
            evidence,
            sentence[0].upper() + sentence[1:],
            group_id=observation.group_id,
            transactional_id=None if owner is None else owner.transactional_id,
            producer_id=self._producer_id,
            about=topic_partition,
        )


def _done(observation: AuditObservation) -> str:
    return "committed" if observation.commit else "aborted"
