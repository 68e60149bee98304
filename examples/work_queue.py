"""A durable work queue: a share group (KIP-932) whose workers acknowledge jobs one by one.

Five workers share twelve jobs. One worker is killed during a job, and another worker gets that job. One job always
fails: after three deliveries the group archives it, and the worker reports it. One job takes longer than the lock of
its record, and the worker renews the lock.

python examples/work_queue.py            # workers are threads around an embedded engine
python examples/work_queue.py --tcp      # workers are processes, connected to a server
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import kcore
from kcore.client.connection import Connection
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kcore.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.testing import ServerProcess
from kcore_ext.batch import BatchBuilder, iter_records, split_batches

TOPIC, GROUP, PARTITIONS, LIMIT = "jobs", "workers", 3, 3
GOOD, POISON, SLOW, INTERRUPTED = [f"job-{n}" for n in range(9)], "poison", "slow", "interrupted"
NAMES = ["ann", "ben", "cat", "dan", "eve"]
ACCEPT, RELEASE, RENEW = 1, 2, 4
LOCK_MS = 1_000
SETTINGS = {
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.assignment.interval.ms": "0",
}

Report = Callable[[str, str, int], None]
"""Takes an event (started, renewed, done, failed, archived), the job, and its delivery count."""


class Worker:
    """One member of the share group.

    Args:
        node: an engine or a connection to a server; both have `send`.
        report: takes every event.
        stopped: set when the worker must stop, at the next job.
        killed: set to simulate the death of this worker in an embedded engine.
    """

    def __init__(self, node: Any, report: Report, stopped: threading.Event, killed: threading.Event) -> None:
        self.node, self.report, self.stopped, self.killed = node, report, stopped, killed
        self.member_id = str(uuid.uuid4())
        self.member_epoch = 0
        self.session_epoch = 0
        self.partitions: list[tuple[bytes, int]] = []

    def run(self) -> None:
        """Works until it is stopped, then releases its records and leaves the group."""
        while not self.stopped.is_set() and not self.killed.is_set():
            self.beat()
            if self.partitions:
                self.fetch()
            else:
                time.sleep(0.05)
        if not self.killed.is_set():
            self.close_session()
            self.beat(leave=True)

    def beat(self, leave: bool = False) -> None:
        """Keeps the membership alive, and takes over a changed assignment."""
        response = self.node.send(
            ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=-1 if leave else self.member_epoch,
                subscribed_topic_names=[TOPIC] if self.member_epoch == 0 else None,
            )
        )
        if response.error_code or leave:
            self.member_epoch = 0  # the group forgot the member: it joins again
            return
        self.member_epoch = response.member_epoch
        if response.assignment is not None:
            self.close_session()
            self.partitions = [
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            ]

    def fetch(self) -> None:
        """Fetches one job and works on it."""
        topics = [
            FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=index)])
            for topic_id, index in (self.partitions if self.session_epoch == 0 else ())
        ]
        response = self.node.send(
            ShareFetchRequest(
                group_id=GROUP,
                member_id=self.member_id,
                share_session_epoch=self.session_epoch,
                max_wait_ms=200,
                min_bytes=1,
                max_records=1,
                batch_size=1,
                share_acquire_mode=1,  # exactly max_records
                topics=topics,
            )
        )
        if response.error_code:
            self.session_epoch = 0
            return
        self.session_epoch += 1
        for topic in response.responses:
            for data in topic.partitions:
                records = bytes(data.records or b"")
                values = {
                    record.offset: bytes(record.value or b"").decode()
                    for start, size in split_batches(records).batches
                    for record in iter_records(records[start : start + size])
                }
                for acquired in data.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        place = (topic.topic_id, data.partition_index, offset)
                        self.work(values[offset], acquired.delivery_count, place)

    def work(self, job: str, delivery: int, place: tuple[bytes, int, int]) -> None:
        """Works on a job, and acknowledges or releases it."""
        self.report("started", job, delivery)
        if job == INTERRUPTED and delivery == 1:
            self.killed.wait(30)  # works on it until it is killed
        elif job == SLOW:
            for _ in range(5):
                time.sleep(LOCK_MS / 2_000)
                self.acknowledge(place, RENEW)
                self.report("renewed", job, delivery)
        if self.killed.is_set():
            return
        if job != POISON:
            self.acknowledge(place, ACCEPT)
            self.report("done", job, delivery)
        else:
            self.acknowledge(place, RELEASE)  # the group archives it if this was the last allowed delivery
            self.report("archived" if delivery >= LIMIT else "failed", job, delivery)

    def acknowledge(self, place: tuple[bytes, int, int], kind: int) -> None:
        """Sends one acknowledgement, which must succeed."""
        topic_id, index, offset = place
        batch = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
        partition = AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        response = self.node.send(
            ShareAcknowledgeRequest(
                group_id=GROUP,
                member_id=self.member_id,
                share_session_epoch=self.session_epoch,
                is_renew_ack=kind == RENEW,
                topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
            )
        )
        assert not response.error_code, response
        assert not response.responses[0].partitions[0].error_code, response
        self.session_epoch += 1

    def close_session(self) -> None:
        """Closes the share session, which releases the records that this worker has not acknowledged."""
        if self.session_epoch:
            request = ShareAcknowledgeRequest(group_id=GROUP, member_id=self.member_id, share_session_epoch=-1)
            self.node.send(request)
            self.session_epoch = 0


# ---- the crew: threads around an engine, or processes around a server


class Threads:
    """Workers in this process."""

    def __init__(self, engine: Any, events: queue.Queue[tuple[str, str, str, int]]) -> None:
        self.stopped = threading.Event()
        self.killed = {name: threading.Event() for name in NAMES}
        self.threads = []
        for name in NAMES:

            def report(event: str, job: str, delivery: int, name: str = name) -> None:
                events.put((name, event, job, delivery))

            worker = Worker(engine, report, self.stopped, self.killed[name])
            self.threads.append(threading.Thread(target=worker.run))
            self.threads[-1].start()

    def kill(self, name: str) -> None:
        """Ends a worker without a word: the lock of its record expires."""
        self.killed[name].set()

    def stop(self) -> None:
        """Stops all workers, and waits for them."""
        self.stopped.set()
        for thread in self.threads:
            thread.join()


class Processes:
    """Workers in processes of their own."""

    def __init__(self, bootstrap: str, events: queue.Queue[tuple[str, str, str, int]]) -> None:
        command = [sys.executable, __file__, "--worker", bootstrap]
        self.processes = {name: subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for name in NAMES}
        self.readers = [threading.Thread(target=self._read, args=(name, events)) for name in NAMES]
        for reader in self.readers:
            reader.start()

    def _read(self, name: str, events: queue.Queue[tuple[str, str, str, int]]) -> None:
        output = self.processes[name].stdout
        assert output is not None
        for line in output:
            event, job, delivery = json.loads(line)
            events.put((name, event, job, delivery))
        output.close()

    def kill(self, name: str) -> None:
        """Kills a worker: the server notices the closed connection, and releases its record at once."""
        self.processes[name].kill()

    def stop(self) -> None:
        """Stops all workers, and waits for them."""
        for process in self.processes.values():
            process.terminate()
        for process, reader in zip(self.processes.values(), self.readers, strict=True):
            process.wait()
            reader.join()


def worker_process(bootstrap: str) -> None:
    """Runs one worker, which prints its events."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def report(event: str, job: str, delivery: int) -> None:
        print(json.dumps([event, job, delivery]), flush=True)

    with Connection.to(bootstrap) as connection:
        Worker(connection, report, stopped, threading.Event()).run()


# ---- the queue


def prepare(node: Any) -> None:
    """Creates topic and group settings, and produces the jobs."""
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    node.send(CreateTopicsRequest(topics=[topic], timeout_ms=1_000))
    own = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(LIMIT)}
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in own.items()]
    group = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=configs)
    node.send(IncrementalAlterConfigsRequest(resources=[group]))
    now_ms = time.time_ns() // 1_000_000
    for number, job in enumerate([*GOOD, POISON, SLOW, INTERRUPTED]):
        batch = BatchBuilder(200, base_timestamp_ms=now_ms)
        batch.append(now_ms, None, job.encode())
        data = PartitionProduceData(index=number % PARTITIONS, records=bytes(batch.build()))
        request = ProduceRequest(
            acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        node.send(request, 9)


def supervise(crew: Threads | Processes, events: queue.Queue[tuple[str, str, str, int]]) -> None:
    """Kills the worker of one job, waits until every job is done or archived, and says what happened."""
    done: dict[str, int] = {}
    renewed = archived = 0
    while len(done) < len(GOOD) + 2 or not archived:
        name, event, job, delivery = events.get(timeout=60)
        if event == "started" and job == INTERRUPTED and delivery == 1:
            crew.kill(name)
        elif event == "renewed":
            renewed += 1
        elif event == "done":
            assert job not in done, f"{job} is done twice"
            done[job] = delivery
        elif event == "archived":
            archived = delivery
    crew.stop()
    print(f"{len(done)} jobs are done")
    print(f"the killed worker's job: done in delivery {done[INTERRUPTED]}")
    print(f"the slow job: done in delivery {done[SLOW]}, its lock was renewed {renewed} times")
    print(f"the failing job: archived after {archived} deliveries")


def check_empty(node: Any) -> None:
    """Prints the records that are left: none, because every delivery is complete."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    (group,) = node.send(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    lags = {part.partition_index: part.lag for topic in group.topics for part in topic.partitions}
    print(f"left in the queue: {sum(lags.values())}")


def main() -> None:
    events: queue.Queue[tuple[str, str, str, int]] = queue.Queue()
    if sys.argv[1:2] == ["--worker"]:
        worker_process(sys.argv[2])
    elif sys.argv[1:] == ["--tcp"]:
        with ServerProcess(None, SETTINGS) as server, Connection.to(server.bootstrap) as connection:
            prepare(connection)
            supervise(Processes(server.bootstrap, events), events)
            check_empty(connection)
    else:
        with kcore.open(config=SETTINGS) as engine:
            prepare(engine)
            supervise(Threads(engine, events), events)
            check_empty(engine)


if __name__ == "__main__":
    main()
