"""A durable work queue: a share group (KIP-932) whose workers acknowledge jobs one by one.

Five workers share twelve jobs. One worker is killed during a job, and another worker gets that job. One job always
fails: after three deliveries the group archives it, and the worker reports it. One job takes longer than the lock of
its record, and the worker renews the lock.

python examples/work_queue.py                         # an embedded node, to which the workers connect
python examples/work_queue.py --connect HOST:PORT     # kcore serve, or Apache Kafka
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time

import kcore

TOPIC, GROUP, LIMIT = "jobs", "workers", 3
GOOD, POISON, SLOW, INTERRUPTED = [f"job-{n}" for n in range(9)], "poison", "slow", "interrupted"
NAMES = ["ann", "ben", "cat", "dan", "eve"]
SETTINGS = {
    "group.share.record.lock.duration.ms": 1_000,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.assignment.interval.ms": 0,
}


def work(bootstrap: str) -> None:
    """Runs one worker until its input ends, and prints its events."""
    with kcore.connect(bootstrap, wait=30.0) as node, node.queue(TOPIC, group=GROUP) as jobs:
        threading.Thread(target=lambda: (sys.stdin.read(), jobs.close()), daemon=True).start()
        for job in jobs:
            name = (job.value or b"").decode()
            print(json.dumps(["started", name, job.delivery_count]), flush=True)
            if name == POISON:
                job.release()  # the group archives it if this was the last allowed delivery
                event = "archived" if job.delivery_count >= LIMIT else "failed"
            else:
                if name == INTERRUPTED and job.delivery_count == 1:
                    time.sleep(60)  # the job lasts until the worker is killed
                elif name == SLOW:
                    for _ in range(5):
                        time.sleep(job.lock_timeout / 2)
                        job.renew()
                        print(json.dumps(["renewed", name, job.delivery_count]), flush=True)
                job.accept()
                event = "done"
            print(json.dumps([event, name, job.delivery_count]), flush=True)


class Workers:
    """The worker processes, and their events."""

    def __init__(self, bootstrap: str) -> None:
        self.events: queue.Queue[tuple[str, str, str, int]] = queue.Queue()
        command = [sys.executable, __file__, "--worker", bootstrap]
        self.processes = {
            name: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in NAMES
        }
        for name in NAMES:
            threading.Thread(target=self._read, args=(name,), daemon=True).start()

    def _read(self, name: str) -> None:
        for line in self.processes[name].stdout or ():
            event, job, delivery = json.loads(line)
            self.events.put((name, event, job, delivery))

    def stop(self) -> None:
        """Stops all workers, and waits for them."""
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes.values():
            process.wait()


def supervise(workers: Workers) -> None:
    """Kills the worker of one job, waits until every job is done or archived, and prints the states of the jobs."""
    done: dict[str, int] = {}
    renewed = archived = 0
    while len(done) < len(GOOD) + 2 or not archived:
        name, event, job, delivery = workers.events.get(timeout=60)
        if event == "started" and job == INTERRUPTED and delivery == 1:
            workers.processes[name].kill()  # the server notices the closed connection, and releases the job at once
        elif event == "renewed":
            renewed += 1
        elif event == "done":
            assert job not in done, f"{job} is done twice"
            done[job] = delivery
        elif event == "archived":
            archived = delivery
    workers.stop()
    print(f"{len(done)} jobs are done")
    print(f"the killed worker's job: done in delivery {done[INTERRUPTED]}")
    print(f"the slow job: done in delivery {done[SLOW]}, its lock was renewed {renewed} times")
    print(f"the failing job: archived after {archived} deliveries")


def run(node: kcore.Node, bootstrap: str) -> None:
    """Creates the queue, adds the jobs, and runs the workers."""
    topic = node.topics.create(TOPIC, 3)
    node.group(GROUP).set_config({"share.auto.offset.reset": "earliest", "share.delivery.count.limit": LIMIT})
    topic.append_many([*GOOD, POISON, SLOW, INTERRUPTED])
    supervise(Workers(bootstrap))


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    elif sys.argv[1:2] == ["--connect"]:
        with kcore.connect(sys.argv[2]) as node:
            run(node, sys.argv[2])
    else:
        with kcore.open(config=SETTINGS) as embedded:
            run(embedded, embedded.listen("127.0.0.1:0").bootstrap)


if __name__ == "__main__":
    main()
