"""Formats names, numbers and times for people. Names come from clients, so their content is not trusted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kcore.printable import NARROW_SPACE, clean

MOST_LETTERS: Final = 200
SHORT_LETTERS: Final = 30
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LAST_MS: Final = 253_402_300_799_999
"""The last time that can be shown as a date, in ms since the epoch: the end of the year 9999."""


def shown(text: object) -> str:
    """Returns a name without control characters, limited to a page's width."""
    letters = str(text)
    return clean(letters if len(letters) <= MOST_LETTERS else letters[: MOST_LETTERS - 1] + "…")


def short(text: object) -> str:
    """Returns a name without control characters, limited to a label's width."""
    letters = shown(text)
    return letters if len(letters) <= SHORT_LETTERS else letters[: SHORT_LETTERS - 1] + "…"


def number(value: float | None) -> str:
    """Formats a number: 1 234 567; 12.5; a dash for None."""
    if value is None:
        return "–"
    text = f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"
    return text.replace(",", NARROW_SPACE)


def duration(ms: int | None) -> str:
    """Formats a duration: 840 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h; a dash for None."""
    if ms is None:
        return "–"
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.3g} s"
    for large, small, first, second in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if ms // 1_000 >= large:
            whole, rest = divmod(ms // 1_000, large)
            return f"{whole} {first} {rest // small} {second}" if rest // small else f"{whole} {first}"
    raise AssertionError(ms)


def utc(ms: int | None, *, days: bool = True, millis: bool = False) -> str:
    """Formats a time in UTC: 2026-11-21 22:05:03; a dash for None, the number if it is not a date."""
    if ms is None:
        return "–"
    if not 0 <= ms <= LAST_MS:
        return f"{ms} ms"
    at = datetime.fromtimestamp(ms / 1_000, UTC)
    text = at.strftime("%Y-%m-%d %H:%M:%S" if days else "%H:%M:%S")
    return f"{text}.{ms % 1_000:03d}" if millis else text
