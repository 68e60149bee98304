"""Checks of the log itself: each offset occurs once, no offset is missing, no batch is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kcore.spark.audit.check import Check, Log
from kcore.spark.audit.finding import Evidence, Finding, finding
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import Part

SHOWN: Final = 5
"""Maximum number of files that a finding names."""

FAULT_KINDS: Final = {
    "corrupt": "corrupt-batch",
    "truncated": "truncated-log",
    "duplicate": "duplicate-offset",
    "missing": "segment-missing",
}
"""Kind of `LogFault` that the reader reports -> kind of finding."""


def of_part(part: Part) -> Iterator[Finding]:
    """Yields the findings that need no rows: missing records at the start of the log, and files that are not read."""
    if part.front is not None:
        current = Evidence(part.topic, part.partition, part.log_start, -1)
        yield finding("log-front-missing", [current], f"{part.topic}-{part.partition}: {part.front}.")
    if part.leftovers:
        first = Evidence(part.topic, part.partition, int(part.leftovers[0].partition(".")[0]), -1)
        more = f" and {len(part.leftovers) - SHOWN} more" if len(part.leftovers) > SHOWN else ""
        sentence = f"{part.topic}-{part.partition}: not read: {', '.join(part.leftovers[:SHOWN])}{more}."
        yield finding("leftover-files", [first], sentence)


class LogOrder(Check):
    """The check of a log for gaps, duplicates and unreadable parts.

    `PartitionAudit` tracks the offsets and calls the methods of this check.
    """

    __slots__ = ("_duplicates", "_last")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._last: EventRow | None = None
        self._duplicates: tuple[EventRow, EventRow] | None = None  # a run of duplicate rows

    def missing(self, first: int, last: int, row: EventRow) -> None:
        """Reports a gap that compaction cannot explain. `row` is the row after the gap."""
        many = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
        before = self._last
        evidence = (
            [self.log.evidence_of(row)] if before is None else [self.log.evidence_of(before), self.log.evidence_of(row)]
        )
        self.log.report("offset-gap", evidence, f"In {self.log.topic}-{self.log.partition} {many} missing.")

    def add(self, row: EventRow) -> None:
        """Processes a row with a higher offset than all earlier rows.

        Reports the previous run of duplicates, unless the row directly follows this run.
        """
        if self._duplicates is not None and row.offset > self._duplicates[1].offset + 1:
            self._twice()
        self._last = row

    def duplicate(self, row: EventRow) -> None:
        """Processes a row if an earlier row has the same or a higher offset.

        If the last row has the same offset but other content, reports a conflict. Otherwise, adds the row to a run of
        duplicates, which becomes one finding.
        """
        last = self._last
        if last is not None and last.offset == row.offset and last != row:
            current = self.log.evidence_of(row)
            sentence = f"Two different records have offset {row.offset} in {row.topic}-{row.partition}."
            self.log.report("offset-conflict", [current], sentence)
        elif self._duplicates is not None and row.offset <= self._duplicates[1].offset + 1:
            self._duplicates = (self._duplicates[0], max(self._duplicates[1], row, key=lambda one: one.offset))
        else:
            self._twice()
            self._duplicates = (row, row)

    def _twice(self) -> None:
        if self._duplicates is not None:
            first, last = self._duplicates
            self._duplicates = None
            many = (
                f"Offset {first.offset} occurs" if first is last else f"Offsets {first.offset} to {last.offset} occur"
            )
            evidence = [self.log.evidence_of(row) for row in ((first,) if first is last else (first, last))]
            sentence = f"{many} twice in {self.log.topic}-{self.log.partition}."
            self.log.report("duplicate-offset", evidence, sentence)

    def fault(self, fault: LogFault) -> None:
        """Reports an unreadable part of the log, which the reader has found."""
        kind = FAULT_KINDS.get(fault.kind, "corrupt-batch")
        self.log.report(kind, [self.log.at(fault.offset)], f"{fault.topic}-{fault.partition}: {fault.detail}.")

    def undecodable(self, row: EventRow, error: Exception) -> None:
        """Reports a record of a known type that cannot be decoded."""
        sentence = f"The record at offset {row.offset} of {row.topic}-{row.partition} cannot be decoded: {error}."
        self.log.report("undecodable-record", [self.log.evidence_of(row)], sentence)

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._last = None

    def end(self) -> None:
        """Implements `Check.end`."""
        self._twice()
