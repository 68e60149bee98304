"""Formats findings for people: the worst first, up to a limit, with the number of further findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from kcore.printable import clean
from kcore.spark.audit.finding import Finding
from kcore.spark.audit.kinds import SEVERITIES, rank

SENTENCE_LETTERS: Final = 400
"""Maximum number of characters of a sentence in the report. The table of findings has the full sentence."""


def lines(findings: Iterable[Finding], total: int) -> list[str]:
    """Returns a header, one line per finding, and the number of further findings.

    Args:
        findings: the findings to show, in order.
        total: the total number of findings.
    """
    rows = [("severity", "kind", "where", "when", "what")]
    rows += [
        (
            finding.severity,
            finding.kind,
            f"{finding.topic}-{finding.partition}@{finding.offset}",
            when(finding),
            _sentence(finding.sentence),
        )
        for finding in findings
    ]
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    shown = ["  ".join([*(row[i].ljust(widths[i]) for i in range(4)), row[4]]) for row in rows]
    remaining = total - (len(rows) - 1)
    return [*shown, f"and {remaining} more: see the table"] if remaining else shown


def _sentence(text: str) -> str:
    """Returns a sentence as one terminal line of limited length. Escapes control characters in clients' names."""
    letters = clean(text)
    return letters if len(letters) <= SENTENCE_LETTERS else f"{letters[: SENTENCE_LETTERS - 1]}…"


def when(finding: Finding) -> str:
    """Returns the timestamp of a finding in UTC."""
    if finding.timestamp_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(finding.timestamp_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{finding.timestamp_ms % 1000:03}"


def summary(counts: Mapping[tuple[str, str], int]) -> list[str]:
    """Returns the number of findings of each kind, worst first.

    Args:
        counts: (severity, kind) -> number of findings.
    """
    if not counts:
        return ["Nothing was found."]
    ordered = sorted(counts.items(), key=lambda item: (rank(item[0][0]), -item[1], item[0][1]))
    by_severity = {name: sum(n for (severity, _), n in counts.items() if severity == name) for name in SEVERITIES}
    head = ", ".join(f"{name}: {number}" for name, number in by_severity.items() if number)
    return [head, *(f"{number:8}  {severity:8} {kind}" for (severity, kind), number in ordered)]
