"""The demonstration: three client libraries share a group; one consumer and the server are killed, and no count is
lost.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcore.demo.processes import Worker
from kcore.demo.show import Show
from kcore.demo.topics import make_topics
from kcore.demo.watch import GroupWatch, Owners
from kcore.demo.worker import LIBRARIES, words_of
from kcore.errors import KcoreError
from kcore.inspect import Selection, folder_events
from kcore.testing import ServerProcess

TOPIC, GROUP, PARTITIONS = "lines", "word-count", 6
WORK_S = 18.0  # the planned duration of the count, so that rebalances are visible
VICTIM = "kafka-python"
KILL_CONSUMER_AT, KILL_SERVER_AT = 0.25, 0.6  # as shares of the work
WAIT_LIMIT_S = 120.0  # the longest wait for one event of the story, after which the demonstration fails
SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "group.min.session.timeout.ms": "1000"}
TAIL_EVENTS = 12


class Story:
    """One run of the demonstration, in which consumers count the words of a file.

    Args:
        path: the file whose words are counted.
        show: prints the progress.
    """

    def __init__(self, path: Path, show: Show) -> None:
        self.lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        self.path = path
        self.show = show
        self.folder = Path(tempfile.mkdtemp(prefix="kcore-demo-"))
        self.data = self.folder / "data"
        self.server = ServerProcess(self.data, SETTINGS)
        self.workers: dict[str, Worker] = {}
        self.counted: dict[tuple[int, int], dict[str, int]] = {}  # (partition, offset) -> words
        self.repeated = 0
        self.owners: Owners | None = None
        self._events: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._watch: GroupWatch | None = None
        self._cause: str | None = None
        self._shown_at_s = 0.0

    def run(self) -> bool:
        """Runs the demonstration. Returns True if every count was right."""
        try:
            self._begin()
            self._until("all three own partitions", lambda: self._owning() == set(LIBRARIES))
            self._until("a quarter is counted", lambda: self._share() >= KILL_CONSUMER_AT)
            self._kill_consumer()
            self._until("the others took over", lambda: self._owning() == set(LIBRARIES) - {VICTIM})
            self._until("most is counted", lambda: self._share() >= KILL_SERVER_AT)
            self._kill_server()
            self._until("everything is counted", lambda: len(self.counted) == len(self.lines))
            self._until("everything is committed", self._all_committed)
            return self._end()
        finally:
            for worker in self.workers.values():
                if worker.alive:
                    worker.kill()
            self.server.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- scenes

    def _begin(self) -> None:
        self.server.start()
        self.show.say("server", f"kcore serve listens on {self.server.bootstrap}, data in {self.data}")
        self._produce()
        self._watch = GroupWatch(self.server.bootstrap, GROUP)
        pause_s = len(LIBRARIES) * WORK_S / max(len(self.lines), 1)
        for library in LIBRARIES:
            arguments = [self.server.bootstrap, GROUP, TOPIC, f"{pause_s:.6f}"]
            self.workers[library] = Worker(library, arguments, self._events)
            self.show.say(library, f"consumer starts (process {self.workers[library].pid})")

    @property
    def bootstrap(self) -> str:
        """The address of the server."""
        return self.server.bootstrap

    def _produce(self) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415

        make_topics(self.bootstrap, {TOPIC: PARTITIONS})
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number, line in enumerate(self.lines):
            while True:
                try:
                    producer.produce(TOPIC, line.encode(), partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if left := producer.flush(60):
            raise KcoreError(f"{left} of {len(self.lines)} lines could not be produced")
        self.show.say("producer", f"{len(self.lines)} lines of {self.path} are in {TOPIC}, {PARTITIONS} partitions")

    def _kill_consumer(self) -> None:
        victim = self.workers[VICTIM]
        self._cause = f"{VICTIM} was killed; its session ran out"
        victim.kill()
        self.show.say(VICTIM, f"SIGKILL (process {victim.pid}): its partitions wait for the session timeout", "red")

    def _kill_server(self) -> None:
        assert self._watch is not None
        self.show.offsets("before the server dies", self._watch.offsets())
        before = self._watch.owners()
        started_s = time.monotonic()
        pid = self.server.kill()
        self._watch.close()
        self.show.say("server", f"SIGKILL (process {pid}) in mid-work", "red")
        self.server.start()
        took_ms = (time.monotonic() - started_s) * 1000
        self.show.panel(
            "the server is back",
            f"recovered {self.server.recovered}\nserving again {took_ms:.0f} ms after the kill, process start included",
        )
        self.show.offsets("what it remembers", self._watch.offsets())
        after = self._watch.owners()
        if before is not None and after is not None and before.members.keys() == after.members.keys():
            self.show.say("server", "the group is still stable: same members, same partitions, no rebalance")

    def _end(self) -> bool:
        assert self._watch is not None
        self._drain(0.0)
        self.show.offsets("at the end", self._watch.offsets())
        for worker in self.workers.values():
            worker.stop()
        self.server.stop()
        self._show_log()
        return self._compare()

    def _compare(self) -> bool:
        """Prints the counts. Returns True if they equal a direct count of the file."""
        counts: Counter[str] = Counter()
        for words in self.counted.values():
            counts.update(words)
        direct: Counter[str] = Counter()
        for line in self.lines:
            direct.update(words_of(line))
        self.show.counts(counts)
        right = counts == direct
        self.show.panel(
            "result",
            f"{len(self.counted)} lines counted, {self.repeated} of them twice (after the kills; counted once)\n"
            + (f"the {sum(counts.values())} words equal a direct count of the file" if right else "THE COUNTS DIFFER"),
            "green" if right else "red",
        )
        return right

    def _show_log(self) -> None:
        found = folder_events(self.data, Selection(topics=("__consumer_offsets",)))
        events = [event for event in found if event.concerns(GROUP)]
        self.show.events(events[-TAIL_EVENTS:])

    # ---- events during the scenes

    def _share(self) -> float:
        return len(self.counted) / max(len(self.lines), 1)

    def _owning(self) -> set[str]:
        return {who for who, owned in self.owners.partitions.items() if owned} if self.owners is not None else set()

    def _all_committed(self) -> bool:
        assert self._watch is not None
        rows = self._watch.offsets()
        return sum(row.offset or 0 for row in rows) == len(self.lines) and all(row.lag == 0 for row in rows)

    def _until(self, what: str, reached: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_LIMIT_S
        while not reached():
            if time.monotonic() > end_s:
                raise KcoreError(f"not reached within {WAIT_LIMIT_S:.0f} s: {what}")
            self._drain(0.2)
            self._look()

    def _drain(self, wait_s: float) -> None:
        """Handles the consumers' events."""
        try:
            self._take(*self._events.get(timeout=wait_s) if wait_s else self._events.get_nowait())
            while True:
                self._take(*self._events.get_nowait())
        except queue.Empty:
            pass

    def _take(self, library: str, event: dict[str, Any]) -> None:
        if event["event"] == "counted":
            for offset, words in event["records"]:
                place = (event["partition"], offset)
                self.repeated += place in self.counted
                self.counted[place] = words
        elif event["event"] == "commit failed":
            self.show.say(library, f"could not commit ({event['reason']}); the records will come again", "yellow")
        elif event["event"] == "ended" and library != VICTIM:
            raise KcoreError(f"the {library} consumer ended unexpectedly")

    def _look(self) -> None:
        """Fetches the partition owners from the server. Prints a completed rebalance and, sometimes, the progress."""
        assert self._watch is not None
        owners = self._watch.owners()
        if owners is not None and owners != self.owners:
            self.show.rebalance(self._cause or self._what_changed(owners), owners)
            self.owners, self._cause = owners, None
        if self.show.elapsed_s - self._shown_at_s > 3.0 and self.counted:
            self._shown_at_s = self.show.elapsed_s
            self.show.progress(len(self.counted), len(self.lines))

    def _what_changed(self, owners: Owners) -> str:
        before = set(self.owners.members.values()) if self.owners is not None else set()
        after = set(owners.members.values())
        parts = [f"{who} joined" for who in sorted(after - before)] + [f"{who} left" for who in sorted(before - after)]
        return ", ".join(parts) or "a member joined again"
