"""The audit of the final log: the rules of kcore's Spark audit, run without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.log import LogEngine
from kcore.spark.audit.across import compare, sort_key
from kcore.spark.audit.finding import AuditObservation, Finding
from kcore.spark.audit.kinds import ERROR
from kcore.spark.audit.logs import Logs
from kcore.spark.audit.partition import examine
from kcore.spark.events.event import EventRow
from kcore.spark.events.pure_batch import rows


def audit(log: LogEngine, names: Mapping[bytes, str], across: bool) -> list[Finding]:
    """Returns the findings that must not occur in a log.

    Args:
        log: the final log of the node.
        names: the names of its topics by id; partitions of other topics are left out.
        across: True to compare partitions with each other by timestamp. Must be False if the wall clock was stepped.
    """
    results: list[Finding | AuditObservation] = []
    for key in log.partitions():
        partition, name = log.get(key), names.get(key.topic_id)
        if partition is None or name is None:
            continue
        event_rows: list[EventRow] = []
        for _, batch in partition.batches():
            event_rows += (row for row in rows(name, key.partition, batch) if row.offset >= partition.log_start_offset)
        results += examine(name, key.partition, event_rows, cleaned_to=partition.cleaned_to)
    observations = [each for each in results if isinstance(each, AuditObservation)]
    findings = [each for each in results if isinstance(each, Finding)]
    if across:
        findings += compare(sorted(observations, key=sort_key), Logs.of(observations))
    return [each for each in findings if each.severity == ERROR]
