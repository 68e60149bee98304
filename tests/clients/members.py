"""Group members in processes of their own, as the tests see them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.clients.java_programs import command
from tests.clients.waiting import DEADLINE_S

Part = tuple[str, int]

_changed = threading.Condition()


def _command(options: dict[str, Any]) -> list[str]:
    """How a member is started; Java's has its options as name=value."""
    if options["library"] != "java":
        return [sys.executable, str(Path(__file__).with_name("member.py")), json.dumps(options)]
    topics = [("topic", topic) for topic in options.pop("topics")]
    given = [(name, value) for name, value in options.items() if value is not None]
    return [*command("Member"), *(f"{name}={value}" for name, value in [*topics, *given])]


def wait_until(
    condition: Callable[[], bool], what: str, members: Iterable[Member], deadline_s: float = DEADLINE_S
) -> None:
    """Waits until what the members said makes `condition` true; a member that breaks meanwhile is a failure."""
    members = list(members)
    with _changed:
        _changed.wait_for(lambda: condition() or any(member.broken for member in members), deadline_s)
        assert condition(), f"not within {deadline_s} s: {what}; " + "; ".join(map(repr, members))


class Member:
    """A consumer process.

    Args:
        library: "confluent-kafka", "kafka-python", "aiokafka" or "java".
        bootstrap: HOST:PORT.
        group: its group.
        topics: what it subscribes to.
        strategy: the assignor's name; "consumer" or "consumer:ASSIGNOR" for the protocol of KIP-848, which
            confluent-kafka and Java speak, and whose session is the group's setting.
        session_timeout_ms: its session; the default is longer than any deadline of a test.
        instance_id: its static membership, None without.

    Attributes:
        owned: what it owns, None before it first said so.
        revoked: every set that its listener was told is taken away.
        records: (topic, partition, offset, value) in the order of their coming.
        uncommitted: how many of the last records it did not commit yet.
        failures: commits that did not.
        broken: it ended by itself.
    """

    def __init__(
        self,
        library: str,
        *,
        bootstrap: str,
        group: str,
        topics: list[str],
        strategy: str = "range",
        session_timeout_ms: int = 60_000,
        instance_id: str | None = None,
    ) -> None:
        self.library = library
        self.owned: frozenset[Part] | None = None
        self.revoked: list[frozenset[Part]] = []
        self.records: list[tuple[str, int, int, str]] = []
        self.uncommitted = 0
        self.failures: list[str] = []
        self.broken = False
        self._ending = False
        options = {
            "library": library,
            "bootstrap": bootstrap,
            "group": group,
            "topics": topics,
            "strategy": strategy,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": 150,
            "instance_id": instance_id,
        }
        self._process = subprocess.Popen(
            _command(options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors = ""
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._listen_to_errors, daemon=True).start()

    def __repr__(self) -> str:
        owned = None if self.owned is None else sorted(self.owned)
        state = "running" if self._process.poll() is None else f"ended with {self._process.returncode}"
        return (
            f"<{self.library} {state} owns {owned}, {len(self.records)} records, {self.uncommitted} not committed, "
            f"{self.failures} {self._errors[-500:]}>"
        )

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with _changed:
                self._heard(json.loads(line))
                _changed.notify_all()
        with _changed:
            self.broken = not self._ending
            _changed.notify_all()

    def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors += line

    def _heard(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "owns":
                self.owned = frozenset((topic, partition) for topic, partition in line["partitions"])
            case "revoked":
                self.revoked.append(frozenset((topic, partition) for topic, partition in line["partitions"]))
            case "record":
                self.records.append((line["topic"], line["partition"], line["offset"], line["value"]))
                self.uncommitted += 1
            case "committed":
                self.uncommitted = 0
            case "commit failed":
                self.failures.append(line["reason"])

    def leave(self) -> None:
        """Ends it cleanly, as an application does; it says goodbye to its group."""
        assert self._process.stdin is not None
        self._ending = True
        self._process.stdin.close()
        status = self._process.wait(DEADLINE_S)
        assert status == 0, self

    def kill(self) -> None:
        """SIGKILL, without a goodbye."""
        self._ending = True
        self._process.kill()
        self._process.wait(DEADLINE_S)


def expect_share(parts: Iterable[Part], *members: Member, even: bool = True, deadline_s: float = DEADLINE_S) -> None:
    """Waits until the members own all of `parts`, each once, and as evenly as they can be shared."""
    wanted = sorted(parts)
    fewest = len(wanted) // len(members) if even else 0

    def shared() -> bool:
        owned = [member.owned or frozenset() for member in members]
        return sorted(part for each in owned for part in each) == wanted and min(map(len, owned)) >= fewest

    wait_until(shared, f"{len(members)} members share {wanted}", members, deadline_s)
