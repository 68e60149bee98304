"""Group members in processes of their own, controlled by the tests."""

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
    """Returns the command that starts a member. Java's program takes its options as name=value."""
    if options["library"] != "java":
        return [sys.executable, str(Path(__file__).with_name("member.py")), json.dumps(options)]
    topics = [("topic", topic) for topic in options.pop("topics")]
    given = [(name, value) for name, value in options.items() if value is not None]
    return [*command("Member"), *(f"{name}={value}" for name, value in [*topics, *given])]


def wait_until(
    condition: Callable[[], bool], what: str, members: Iterable[Member], deadline_s: float = DEADLINE_S
) -> None:
    """Waits until the members' events make `condition` true; fails if a member ends unexpectedly."""
    members = list(members)
    with _changed:
        _changed.wait_for(lambda: condition() or any(member.broken for member in members), deadline_s)
        assert condition(), f"not within {deadline_s} s: {what}; " + "; ".join(map(repr, members))


class Member:
    """A consumer process.

    Args:
        library: "kcore", "confluent-kafka", "kafka-python", "aiokafka" or "java".
        bootstrap: HOST:PORT.
        group: its group.
        topics: its subscribed topics.
        strategy: the name of the assignor. "consumer" or "consumer:ASSIGNOR" selects the protocol of KIP-848, which
            only confluent-kafka and Java support.
        session_timeout_ms: its session timeout; the default is longer than any deadline of a test. In the protocol of
            KIP-848, the group's setting applies instead.
        instance_id: its group instance id; None for a dynamic member.
        client_id: its client id. Only "kcore" uses it.

    Attributes:
        owned: its partitions, None before its first event.
        revoked: every set of partitions that its listener reported as revoked.
        records: (topic, partition, offset, value) in order of arrival.
        uncommitted: the number of records since the last commit.
        failures: failed commits.
        broken: True if it ended unexpectedly.
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
        client_id: str | None = None,
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
            "client_id": client_id,
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
                self._handle_event(json.loads(line))
                _changed.notify_all()
        with _changed:
            self.broken = not self._ending
            _changed.notify_all()

    def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors += line

    def _handle_event(self, line: dict[str, Any]) -> None:
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
        """Ends the process cleanly, like an application: the member leaves its group."""
        assert self._process.stdin is not None
        self._ending = True
        self._process.stdin.close()
        status = self._process.wait(DEADLINE_S)
        assert status == 0, self

    def kill(self) -> None:
        """Sends SIGKILL; the process does not leave its group."""
        self._ending = True
        self._process.kill()
        self._process.wait(DEADLINE_S)


def expect_share(parts: Iterable[Part], *members: Member, even: bool = True, deadline_s: float = DEADLINE_S) -> None:
    """Waits until the members own all of `parts`, each once, and as evenly as possible."""
    wanted = sorted(parts)
    fewest = len(wanted) // len(members) if even else 0

    def shared() -> bool:
        owned = [member.owned or frozenset() for member in members]
        return sorted(part for each in owned for part in each) == wanted and min(map(len, owned)) >= fewest

    wait_until(shared, f"{len(members)} members share {wanted}", members, deadline_s)
