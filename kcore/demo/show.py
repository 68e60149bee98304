"""Terminal output of the demonstration."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kcore.demo.watch import Owners
from kcore.inspect import Event

COLOURS = {"confluent-kafka": "cyan", "kafka-python": "yellow", "aiokafka": "magenta", "server": "green"}


class Show:
    """The output of the demonstration: each event has the time since the start as its prefix."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._started_s = time.monotonic()
        self._rebalances = 0

    @property
    def elapsed_s(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._started_s

    def say(self, who: str, what: str, style: str = "") -> None:
        """Prints one line: the time, the actor and its action."""
        line = Text(f"{self.elapsed_s:6.1f} s  ", style="dim")
        line.append(f"{who:<16}", style=COLOURS.get(who, "bold"))
        line.append(what, style=style)
        self.console.print(line)

    def command(self, words: Sequence[str]) -> None:
        """Prints a command that is about to run."""
        self.console.print()
        self.console.print(
            Text(f"{self.elapsed_s:6.1f} s  ", style="dim").append(f"$ {shlex.join(words)}", "bold"), soft_wrap=True
        )

    def rebalance(self, cause: str, owners: Owners) -> None:
        """Prints the cause of a completed rebalance and the new owners."""
        self._rebalances += 1
        self.console.print(Rule(f"rebalance {self._rebalances}: {cause}", style="blue", align="left"))
        for member, partitions in sorted(owners.partitions.items()):
            self.say(member, "owns " + (", ".join(map(str, partitions)) or "nothing"))

    def progress(self, counted: int, total: int) -> None:
        """Prints the progress of the count."""
        filled = 40 * counted // max(total, 1)
        self.say("counted", f"{'█' * filled}{'░' * (40 - filled)} {counted} of {total} lines")

    def offsets(self, title: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Prints committed offsets and lag, one line per partition."""
        table = Table(title=title, title_justify="left", pad_edge=False)
        for name in ("partition", "committed", "log end", "lag"):
            table.add_column(name, justify="right")
        for _, _, partition, committed, end, lag, _ in rows:
            style = "" if lag == 0 else "yellow"
            table.add_row(str(partition), str(committed), str(end), str(lag), style=style)
        self.console.print(table)

    def panel(self, title: str, text: str, style: str = "green") -> None:
        """Prints a highlighted text."""
        self.console.print(Panel(text, title=title, border_style=style, title_align="left", expand=False))

    def events(self, events: Iterable[Event]) -> None:
        """Prints the tail of the event log."""
        table = Table(title="tail of the event log (kcore log dump)", title_justify="left", pad_edge=False)
        table.add_column("offset", justify="right", no_wrap=True)
        table.add_column("record", no_wrap=True)
        table.add_column("about")
        table.add_column("what")
        for event in events:
            table.add_row(str(event.offset), event.type, _about(event), _brief(event.value))
        self.console.print(table)

    def counts(self, counts: Counter[str]) -> None:
        """Prints the most frequent words."""
        words = "  ".join(f"{word} {count}" for word, count in counts.most_common(8))
        self.say("words", f"{len(counts)} different, {sum(counts.values())} in all; most often: {words}")


def _about(event: Event) -> str:
    key = event.key if isinstance(event.key, dict) else {}
    return f"{key['topic']}-{key['partition']}" if "topic" in key else str(key.get("group", ""))


def _brief(value: Any) -> str:
    """Summarises a record without ids, timestamps and bytes."""
    if value is None:
        return "<deleted>"
    if "members" in value:
        members = ", ".join(sorted(member["client_id"] for member in value["members"])) or "no member"
        return f"generation {value['generation']}: {members}"
    return f"committed offset {value['offset']}" if "offset" in value else str(value)
