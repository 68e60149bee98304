"""The demonstration of a cluster: four client libraries share a group, while nodes and the database's primary fail.

At the end, each record must be counted once, and the audit of the exported log must have no findings.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from kcore.demo.nodes import Nodes
from kcore.demo.postgresql import Servers
from kcore.demo.processes import Worker
from kcore.demo.show import Show
from kcore.demo.story import GROUP, TOPIC, Story
from kcore.demo.watch import GroupWatch
from kcore.demo.worker import CLUSTER_LIBRARIES
from kcore.errors import KcoreError

WORK_S: Final = 75.0
"""The planned duration of the consumers' work in seconds, long enough for every failure to happen during the work."""
NODES: Final = (1, 2, 3)
PAUSE_S: Final = 5.0
"""The time in seconds for which SIGSTOP suspends a node: longer than the node's lease of 3 s."""


class PostgresqlStory(Story):
    """One run of the demonstration, in which consumers count the words of a file.

    The cluster has three nodes. Its store is a PostgreSQL server with a synchronous standby.

    Args:
        path: the file whose words are counted.
        show: prints the progress.

    Raises:
        ConfigError: PostgreSQL's server programs are not installed.
    """

    def __init__(self, path: Path, show: Show) -> None:
        self.servers = Servers()
        super().__init__(path, show)
        self.primary = self.servers.server("primary")
        self.standby = self.servers.server("standby")
        self.nodes: Nodes | None = None

    @property
    def cluster(self) -> Nodes:
        """The nodes, once they were started."""
        assert self.nodes is not None, "the story has begun"
        return self.nodes

    def run(self) -> bool:
        """Runs the demonstration. Returns True if all counts were right and the audit has no findings."""
        try:
            self._begin()
            self._until("all own partitions", lambda: self._owning() == set(CLUSTER_LIBRARIES))
            scenes = (self._kill_node, self._pause_node, self._drain_node, self._stop_node, self._kill_primary)
            for number, scene in enumerate(scenes, 1):
                share = number / (len(scenes) + 2)
                self._until(f"{share:.0%} are counted", lambda share=share: self._share() >= share)  # type: ignore[misc]
                scene()
            self._until("everything is counted", lambda: len(self.counted) == len(self.lines))
            self._until("everything is committed", self._all_committed)
            return self._end()
        finally:
            for worker in self.workers.values():
                if worker.alive:
                    worker.kill()
            if self.nodes is not None:
                self.nodes.close()
            self.servers.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- scenes

    def _begin(self) -> None:
        self.primary.create()
        self.standby.copy_of(self.primary)
        self.show.say("postgresql", f"primary on port {self.primary.port}, synchronous standby on {self.standby.port}")
        url = f"postgresql://kcore@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres"
        self.nodes = nodes = Nodes(url, NODES, self.folder)
        self.show.command(["kcore", "cluster", "init", url])
        print(nodes.command("init", url), end="")
        for node_id in NODES:
            nodes.start(node_id)
            self.show.say(f"node {node_id}", f"kcore serve --cluster … on port {nodes.ports[node_id]}")
        nodes.wait_leading(*NODES)
        self._produce()
        self._show_status()
        self._watch = GroupWatch(nodes.bootstrap, GROUP)
        pause_s = len(CLUSTER_LIBRARIES) * WORK_S / max(len(self.lines), 1)
        for library in CLUSTER_LIBRARIES:
            self.workers[library] = Worker(library, [nodes.bootstrap, GROUP, TOPIC, f"{pause_s:.6f}"], self._events)
            self.show.say(library, f"consumer starts (process {self.workers[library].pid})")

    @property
    def bootstrap(self) -> str:
        """The addresses of the nodes."""
        return self.cluster.bootstrap

    def _kill_node(self) -> None:
        self.show.say("node 1", f"SIGKILL (process {self.cluster.pid(1)}): the others take over after its lease", "red")
        self.cluster.kill(1)
        self._wait_leading(2, 3)
        self.cluster.start(1)
        self._wait_leading(*NODES)
        self.show.say("node 1", "is back, and leads partitions again")

    def _pause_node(self) -> None:
        self.show.say("node 2", f"SIGSTOP for {PAUSE_S:g} s, longer than its lease", "red")
        self.cluster.signal(2, signal.SIGSTOP)
        self._wait_leading(1, 3)
        self.cluster.signal(2, signal.SIGCONT)
        self._wait_leading(*NODES)
        self.show.say("node 2", "has noticed that it was fenced, and has registered again")

    def _drain_node(self) -> None:
        self.show.command(["kcore", "cluster", "drain", "URL", "3"])
        self.cluster.command("drain", self.cluster.url, "3")
        self._wait_leading(1, 2)
        self._show_status()
        self.cluster.command("drain", "--stop", self.cluster.url, "3")
        self._wait_leading(*NODES)
        self.show.say("node 3", "leads partitions again")

    def _stop_node(self) -> None:
        self.show.say("node 1", "SIGTERM: it hands its partitions over, and is started again")
        if code := self.cluster.stop(1):
            raise KcoreError(f"node 1 ended with code {code}; its log is in {self.folder}")
        self.cluster.start(1)
        self._wait_leading(*NODES)

    def _kill_primary(self) -> None:
        self.show.say("postgresql", "the primary is killed, and the standby is promoted", "red")
        self.primary.crash()
        self.standby.promote()
        self._wait_leading(*NODES)
        self.show.say("postgresql", f"the nodes continue on port {self.standby.port}")

    def _wait_leading(self, *node_ids: int) -> None:
        """Waits until exactly these nodes lead partitions, and processes the consumers' events meanwhile."""
        self._until(f"nodes {node_ids} lead", lambda: self.cluster.leading() == set(node_ids))

    def _show_status(self) -> None:
        self.show.command(["kcore", "cluster", "status", "URL"])
        print(self.cluster.command("status", self.cluster.url), end="")

    def _end(self) -> bool:
        assert self._watch is not None
        self._drain(0.0)
        self.show.offsets("at the end", self._watch.offsets())
        self._watch.close()
        for worker in self.workers.values():
            worker.stop()
        right = self._compare()
        return self._audit() and right

    def _audit(self) -> bool:
        """Exports the log from the database, verifies and audits the export. Returns True if no step has findings."""
        events = str(self.folder / "events")
        verbs = [
            ["export", "--cluster", self.cluster.url, "--out", events],
            ["export", "verify", events],
            ["spark", "audit", events, "--out", str(self.folder / "audit"), "--master", "local[2]"],
        ]
        sound = True
        for verb in verbs:
            self.show.command(["kcore", *("URL" if word == self.cluster.url else word for word in verb)])
            sound = subprocess.run([sys.executable, "-m", "kcore", *verb], check=False).returncode == 0 and sound
        self.show.panel("audit", "no findings" if sound else "FINDINGS", "green" if sound else "red")
        return sound
