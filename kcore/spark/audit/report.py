"""Findings for people: the worst first, as many as asked for, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from kcore.printable import clean
from kcore.spark.audit.finding import Finding
from kcore.spark.audit.kinds import SEVERITIES, rank

SENTENCE_LETTERS: Final = 400
"""So many are shown of a sentence; the table holds all of it."""


def lines(findings: Iterable[Finding], total: int) -> list[str]:
    """A line a finding under a head, and how many more there are.

    Args:
        findings: the first ones, in their order.
        total: how many there are in all.
    """
    rows = [("severity", "kind", "where", "when", "what")]
    rows += [
        (one.severity, one.kind, f"{one.topic}-{one.partition}@{one.offset}", when(one), _sentence(one.sentence))
        for one in findings
    ]
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    shown = ["  ".join([*(row[i].ljust(widths[i]) for i in range(4)), row[4]]) for row in rows]
    left = total - (len(rows) - 1)
    return [*shown, f"and {left} more: see the table"] if left else shown


def _sentence(text: str) -> str:
    """A sentence in one line of a terminal, whatever clients' names are in it."""
    letters = clean(text)
    return letters if len(letters) <= SENTENCE_LETTERS else f"{letters[: SENTENCE_LETTERS - 1]}…"


def when(one: Finding) -> str:
    """The time at which a finding shows, in UTC."""
    if one.timestamp_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(one.timestamp_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{one.timestamp_ms % 1000:03}"


def summary(counts: Mapping[tuple[str, str], int]) -> list[str]:
    """How many of each kind there are, the worst first.

    Args:
        counts: (severity, kind) -> how many.
    """
    if not counts:
        return ["Nothing was found."]
    found = sorted(counts.items(), key=lambda item: (rank(item[0][0]), -item[1], item[0][1]))
    by_severity = {name: sum(n for (severity, _), n in counts.items() if severity == name) for name in SEVERITIES}
    head = ", ".join(f"{name}: {number}" for name, number in by_severity.items() if number)
    return [head, *(f"{number:8}  {severity:8} {kind}" for (severity, kind), number in found)]
