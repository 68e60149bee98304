# Made by tools/generate_sync.py from _async/queue.py: change that file, then run the program.
"""Work queues: members of share groups (KIP-932)."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.client.malformed import MALFORMED, malformed
from kcore.client.share_consumer import (
    Acknowledged,
    Acknowledgement,
    ShareMembership,
    SharePartition,
    ShareSession,
    acquired_ranges,
    backoff_ms,
    count_accepted,
)
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError, PartitionErrors
from kcore.node._sync.backend import Event, Lock, SingleTask, acquire_within, now_ms, sleep, spawn
from kcore.node._sync.calls import Calls
from kcore.node._sync.job import FetchedJobs, Job, ShareLink
from kcore.node._sync.missing_topics import Subscription
from kcore.node.arguments import check_wait
from kcore.node.requests import acquired_batches, read_acquired
from kcore.node.types import TopicPartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.uuids import to_text

WAIT_MS = 500
SHORT_WAIT_MS = 50
"""The longest time in ms that a broker waits for jobs while the program processes earlier jobs. The wait delays the
acknowledgements of the earlier jobs."""
CLOSE_TIMEOUT_S = 10.0
"""The time in seconds for which `close` waits for the responses to acceptances of jobs."""
LEAVE_TIMEOUT_S = 5.0
"""The time in seconds for which `close` waits for the responses to requests without acceptances: the end of a share
session, and the leave of the group. The loss of such a request loses no acceptance."""
EXCHANGE_WAIT_MS = 2_000
"""The time in ms for which `close` waits for the responses to other requests of the share sessions. It is longer than
the time for which a broker waits for jobs."""
LEADERLESS_PAUSE_MS = 1_000
"""The pause in ms before the worker looks up the leaders of leaderless partitions again."""

UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
"""The error with which Apache Kafka 4.3.1 refuses a ShareFetch of a deleted topic. The worker then tries again."""

logger = logging.getLogger(__name__)


class Queue:
    """A worker of a share group. `node.queue("jobs", group="workers")` creates it; use it with `with`.

    Iteration yields jobs until the queue is closed. The worker sends heartbeats in the background, and fetches jobs
    only when the program requests one.

    Args:
        calls: the node's requests.
        topics: the names of the topics whose records are the jobs.
        group: the id of the share group.
        auto_accept: True to accept a job when the program requests the next job.
        max_jobs: the largest number of jobs that one request fetches.
        rack: the worker's rack.
    """

    def __init__(
        self, calls: Calls, topics: list[str], group: str, *, auto_accept: bool, max_jobs: int, rack: str | None
    ) -> None:
        self._calls = calls
        self._membership = ShareMembership(group, topics, rack)
        self._auto_accept = auto_accept
        self._max_jobs = max_jobs
        self._channel = f"queue-{uuid.uuid4().hex}"
        self._subscription = Subscription(
            calls, self._membership.topics, f"a worker of share group {self._membership.group_id!r}"
        )
        self._getting = Lock()
        self._changed = Event()  # the membership has changed, or the queue is closed
        self._wakeup = Event()
        self._beats = SingleTask(self._send_heartbeats)
        self._beats_done = Event()
        self._links: dict[Broker, ShareLink] = {}
        self._names: dict[bytes, str] = {}
        self._assigned: dict[Broker, frozenset[SharePartition]] = {}
        self._assigned_version = -1
        self._leaders_at_ms = 0  # the time of the next lookup of missing leaders; 0: none is missing
        self._buffer: deque[Job] = deque()
        self._fetched: deque[FetchedJobs] = deque()
        self._held: list[Job] = []
        self._attempts = 0
        self._empty_fetches = 0
        self._started = False
        self._closed = False
        self._close_by_ms = 0

    def __repr__(self) -> str:
        return f"Queue({self._membership.group_id!r}, {self.member_id!r}, {self._membership.state})"

    @property
    def member_id(self) -> str:
        """The worker's id as a member of the group."""
        return self._membership.member_id

    @property
    def _described(self) -> str:
        """The description of the worker for log lines."""
        return f"worker {self.member_id} of share group {self._membership.group_id!r}"

    # ---- beginning and end

    def __enter__(self) -> Queue:
        try:
            self._start()
        except BaseException:  # a KeyboardInterrupt: the worker may have begun to join
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._accept_held()
        self.close()

    def _start(self) -> None:
        self._calls.require_owner()
        if self._started or self._closed:
            return
        self._calls.add_resource(self)
        self._started = True
        try:
            self._beats.start()
        except RuntimeError:  # the system has no thread for it
            self._started = False
            raise

    def close(self) -> None:
        """Leaves the group and ends iterations. The brokers release jobs without an acknowledgement.

        If brokers do not respond, `close` waits for at most 10 seconds for the acceptances of jobs, and for at most 5
        seconds for the coordinator.

        If the call is cancelled or interrupted, the worker leaves in the background.
        """
        if self._closed or self._calls.abandoned:
            return
        self._calls.require_owner()
        self._closed = True
        self._calls.resources.pop(self, None)
        self._wakeup.set()
        self._changed.set()
        if not self._started:
            return
        try:
            leaving = spawn(self._leave)
        except RuntimeError:  # the system has no thread for it
            self._leave()
        else:
            leaving.join()

    def _leave(self) -> None:
        """Ends the share sessions, and leaves the group. All requests together have the time limit of `close`.

        A broker may not respond to a ShareFetch of `get`, or to an acknowledgement. Its connection is then closed after
        `EXCHANGE_WAIT_MS`. The broker releases the jobs at the end of the connection, as it does in Kafka.
        """
        self._close_by_ms = now_ms() + round(CLOSE_TIMEOUT_S * 1000)
        busy = [link for link in list(self._links.values()) if not self._end_session(link, 0.0)]
        until_ms = self._close_by_ms if self._calls.local else now_ms() + EXCHANGE_WAIT_MS
        for link in busy:
            if not self._end_session(link, max(0, until_ms - now_ms()) / 1000):
                # A broker ends a share session with its connection. The requests without a response fail now.
                self._calls.transport.close_channel(self._channel)
        if not self._beats.withdraw():  # else an interrupt came before the first heartbeat
            self._beats_done.wait(self._close_timeout_s(False))
        leave = self._membership.leave()
        if leave is not None:
            try:
                self._calls.transport.send(leave, timeout_s=self._close_timeout_s(False))
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                logger.debug("client: %s could not leave its group: %s", self._described, error)
        self._calls.transport.close_channel(self._channel)

    def _close_timeout_s(self, accepts: bool) -> float:
        """Returns the time limit in seconds of a request that `close` sends: its remaining time, but at least 1.

        Args:
            accepts: True if the request has acceptances of jobs, so that the loss of the request has an effect.
        """
        if not self._closed:
            return CLOSE_TIMEOUT_S
        given_up_s = 0.0 if accepts else CLOSE_TIMEOUT_S - LEAVE_TIMEOUT_S
        return max(1.0, (self._close_by_ms - now_ms()) / 1000 - given_up_s)

    def _end_session(self, link: ShareLink, wait_s: float) -> bool:
        """Ends a share session. Returns False if another request of the session has no response within `wait_s`."""
        if not acquire_within(link.lock, wait_s):
            return False
        try:
            if link.session.is_open:
                self._close_session(link)
        finally:
            link.lock.release()
        return True

    def _close_session(self, link: ShareLink) -> None:
        """Ends a share session.

        Raises no errors: after an error, the broker has already ended the session, or cannot be reached.
        """
        request = link.session.close()
        limit_s = self._close_timeout_s(count_accepted(request) > 0)
        try:
            response = self._calls.transport.send(request, broker=link.broker, channel=self._channel, timeout_s=limit_s)
        except (KafkaError, ConnectionClosedError, TimeoutError) as error:
            logger.debug("client: %s could not close its share session: %s", self._described, error)
            self._log_lost(count_accepted(request), error)
        else:
            if response.error_code:
                self._log_lost(count_accepted(request), KafkaError.of(response.error_code, response.error_message))
            self._log_refused(response, "error_code")

    def _send_heartbeats(self) -> None:
        membership = self._membership
        try:
            while not self._closed and membership.error is None:
                request = membership.request()
                try:
                    response = self._calls.transport.send(request)
                    if response.error_code:
                        self._calls.transport.forget(request)
                    membership.received(response, now_ms())
                    self._changed.set()
                    if self._subscription.begin():
                        self._subscription.look_up()
                except Exception as error:
                    self._calls.transport.forget(request)
                    membership.failed(error, now_ms())
                    self._changed.set()
                self._wakeup.wait(max(0, membership.heartbeat_at_ms - now_ms()) / 1000)
        finally:
            self._beats_done.set()
            self._changed.set()

    # ---- jobs

    def __iter__(self) -> Iterator[Job]:
        return self._jobs()

    def _jobs(self) -> Iterator[Job]:
        """Yields jobs until the queue is closed. If this iteration has started the worker, the worker leaves the group
        at the end of the iteration.
        """
        owns = not self._started
        try:
            while (job := self.get()) is not None:
                yield job
        finally:
            if owns:
                self.close()

    def get(self, timeout: float | None = None) -> Job | None:
        """Returns the next job. With `auto_accept`, accepts the previous job unless the program has acknowledged it.

        Args:
            timeout: the time in seconds to wait for a job; None: no limit.

        Returns:
            The job; None if no job arrived in time, or if the queue is closed.

        Raises:
            KafkaError: the group or a broker refused the worker.
        """
        check_wait("timeout", timeout)
        self._start()
        deadline_ms = None if timeout is None else now_ms() + round(timeout * 1000)
        with self._getting:
            self._accept_held()
            while not self._closed:
                job = self._next()
                if job is not None:
                    return job
                if self._membership.error is not None:
                    raise self._membership.error
                left_ms = None if deadline_ms is None else max(0, deadline_ms - now_ms())
                self._fill(WAIT_MS if left_ms is None else min(left_ms, WAIT_MS))
                if not self._fetched and left_ms == 0:
                    return None
        return None

    def _next(self) -> Job | None:
        """Takes the next fetched job whose lock has not expired.

        A response of a megabyte can decompress to many gigabytes, so only one batch is decoded at a time.
        """
        while self._buffer or self._fetched:
            if not self._buffer:
                self._decode(self._fetched.popleft())
                continue
            job = self._buffer.popleft()
            if job._lock_ends_ms > now_ms() and job._session == job._link.session.number:
                self._held.append(job)
                return job
        return None

    def _decode(self, fetched: FetchedJobs) -> None:
        """Creates the jobs of a batch unless the locks have expired. Acknowledges offsets without a record as gaps."""
        session = fetched.link.session
        if fetched.session != session.number or fetched.lock_ends_ms <= now_ms():
            return
        try:
            records = read_acquired(fetched.batch)
        except KafkaError as error:
            logger.warning(
                "client: %s cannot read a batch of %s-%d: %s; when the locks of its records expire, the group delivers "
                "the records again",
                self._described,
                self._topic(fetched.share_partition.topic_id),
                fetched.share_partition.partition,
                error,
            )
            return
        for record in records:
            deliveries = fetched.batch.deliveries(record.offset) or 1
            job = Job(self, fetched.link, fetched.share_partition, record, deliveries)
            job.lock_timeout = fetched.lock_timeout_ms / 1000
            job._lock_ends_ms = fetched.lock_ends_ms
            self._buffer.append(job)
        for first, last in fetched.batch.gaps(record.offset for record in records):
            session.add(fetched.share_partition, first, Acknowledgement.GAP, last)

    def _accept_held(self) -> None:
        """Removes jobs from `_held`, the list of the jobs that the program processes.

        Without `auto_accept`, removes acknowledged jobs and jobs with expired locks. With `auto_accept`, removes all
        jobs; the next request to the broker then accepts the jobs that the program has not acknowledged.
        """
        if self._auto_accept:
            lost = 0
            for job in self._held:
                if job._explicit:
                    continue
                if job._session == job._link.session.number:
                    job._acknowledged = True
                    job._link.session.add(job._share_partition, job.offset, Acknowledgement.ACCEPT)
                else:
                    lost += 1
            self._held.clear()
            self._log_lost(lost, "the share session has ended")
        else:
            at_ms = now_ms()
            self._held = [job for job in self._held if not job._acknowledged and job._lock_ends_ms > at_ms]

    def _acknowledge(self, job: Job, kind: Acknowledgement) -> None:
        """Sends the acknowledgement of one job."""
        self._calls.require_owner()
        if job._acknowledged:
            raise KcoreError(f"{job!r} is already acknowledged")
        link = job._link
        renews = kind is Acknowledgement.RENEW
        with link.lock:
            if job._session != link.session.number or self._closed:
                raise KafkaError.of(ErrorCode.INVALID_RECORD_STATE, "the share session of the job has ended")
            job._explicit = job._explicit or not renews
            acknowledged = Acknowledged(job.offset, job.offset, kind)
            request = link.session.acknowledge({job._share_partition: [acknowledged]}, renews=renews)
            response = self._exchange(link, request, implicit=False)
        try:
            row = response.responses[0].partitions[0]
        except MALFORMED as error:
            raise malformed(link.broker, request, error) from error
        if row.error_code:
            raise KafkaError.of(row.error_code, row.error_message, [job.record.topic_partition])
        if renews:
            job._lock(response.acquisition_lock_timeout_ms)
        else:
            job._acknowledged = True

    def _exchange(self, link: ShareLink, request: Any, *, implicit: bool = True) -> Any:
        """Sends a request of a share session.

        Args:
            link: the session, whose lock the caller holds.
            request: a ShareFetch or ShareAcknowledge request.
            implicit: True if the request can contain automatic acceptances of jobs. If this request fails, the method
                logs the number of jobs whose acceptance may be lost.
        """
        try:
            response = self._calls.transport.send(request, broker=link.broker, channel=self._channel)
            if response.error_code:
                raise KafkaError.of(response.error_code, response.error_message)
        except BaseException as error:
            ended = isinstance(error, KafkaError) and error.code == ErrorCode.SHARE_SESSION_NOT_FOUND
            link.session.reset(response_lost=not ended)
            if implicit:
                self._log_lost(count_accepted(request), error)
            raise
        link.session.succeeded()
        return response

    # ---- fetching

    def _fill(self, wait_ms: int) -> None:
        """Fetches jobs from one broker; waits if no broker leads an assigned partition."""
        try:
            self._changed.clear()
            self._find_leaders()
            link = self._choose()
            if link is None:
                if self._membership.error is None and not self._closed:
                    self._changed.wait(wait_ms / 1000)
                return
            if self._held:
                wait_ms = min(wait_ms, SHORT_WAIT_MS)
            elif len(self._assigned) > 1:  # fetch from all brokers before waiting at one
                wait_ms = 0 if self._empty_fetches < len(self._assigned) else min(wait_ms, 2 * SHORT_WAIT_MS)
            self._fetch(link, wait_ms)
            self._attempts = 0
        except (KafkaError, PartitionErrors, ConnectionClosedError, TimeoutError) as error:
            if self._closed:
                return
            if isinstance(error, KafkaError) and not (error.retriable or error.code == UNKNOWN_SERVER_ERROR):
                raise
            self._assigned_version = -1
            if self._attempts == 0:
                logger.warning(
                    "client: %s cannot fetch jobs: %s; the client tries again; if this repeats, check the brokers",
                    self._described,
                    error,
                )
            if self._fetched:
                return
            sleep(min(wait_ms, backoff_ms(self._attempts)) / 1000)
            self._attempts += 1

    def _find_leaders(self) -> None:
        """Groups the assigned partitions by their leaders, after the assignment or a leader has changed."""
        membership = self._membership
        version, assignment = membership.version, membership.assignment
        if version == self._assigned_version and not 0 < self._leaders_at_ms <= now_ms():
            return
        if any(each.topic_id not in self._names for each in assignment):
            response = self._calls.transport.metadata(membership.topics)
            self._names |= {topic.topic_id: topic.name for topic in response.topics if topic.name and topic.topic_id}
        ids = {
            TopicPartition(self._names[each.topic_id], each.partition): each
            for each in assignment
            if each.topic_id in self._names
        }
        groups = self._by_leader(sorted(ids))
        self._assigned = {broker: frozenset(ids[each] for each in listed) for broker, listed in groups}
        for broker in self._assigned:
            if broker not in self._links:
                session = ShareSession(membership.group_id, membership.member_id)
                self._links[broker] = ShareLink(broker, session)
        if len(ids) == len(assignment):
            self._assigned_version = version

    def _by_leader(self, partitions: list[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders. The worker looks up leaderless partitions again after a pause."""
        left_out: Exception | None = None
        groups: list[tuple[Broker, list[TopicPartition]]] = []
        while partitions and not groups:
            try:
                groups = self._calls.transport.by_leader(partitions)
            except KafkaError as error:
                left_out = error
                refused = set(error.partitions).intersection(partitions)
                partitions = [each for each in partitions if each not in refused]
                if not refused or not partitions or not error.retriable:
                    raise
        if left_out is None:
            self._leaders_at_ms = 0
        else:
            if not self._leaders_at_ms:
                logger.warning(
                    "client: %s cannot find the leaders of some partitions: %s; the client gets no jobs of these "
                    "partitions until it finds their leaders; check that these topics exist and all brokers run",
                    self._described,
                    left_out,
                )
            self._leaders_at_ms = now_ms() + LEADERLESS_PAUSE_MS
        return groups

    def _choose(self) -> ShareLink | None:
        """Chooses the next broker: one with pending acknowledgements or, if there is none, the next in rotation."""
        for link in list(self._links.values()):
            if link.session.pending:
                if link.broker in self._assigned:
                    return link
                with link.lock:
                    request = link.session.acknowledge(link.session.take_pending())
                    self._log_refused(self._exchange(link, request), "error_code")
        for broker in self._assigned:
            self._assigned[broker] = self._assigned.pop(broker)  # to the end of the order
            return self._links[broker]
        return None

    def _fetch(self, link: ShareLink, wait_ms: int) -> None:
        with link.lock:
            if link.session.must_close:
                self._close_session(link)
            if self._closed:
                return
            request = link.session.fetch(self._assigned[link.broker], self._max_jobs, wait_ms)
            response = self._exchange(link, request)
            try:
                fetched, errors = self._read(link, response)
            except MALFORMED as fault:
                raise malformed(link.broker, request, fault) from fault
        self._empty_fetches = 0 if fetched else self._empty_fetches + 1
        self._fetched.extend(fetched)
        self._log_refused(response, "acknowledge_error_code")
        for error in errors:
            self._calls.transport.forget_leaders(error.partitions)
        if errors:
            raise next((error for error in errors if not error.retriable), errors[0])

    def _read(self, link: ShareLink, response: Any) -> tuple[list[FetchedJobs], list[KafkaError]]:
        """Returns the batches with acquired records, and the errors, of a response."""
        fetched: list[FetchedJobs] = []
        errors: list[KafkaError] = []
        for topic in response.responses:
            for row in topic.partitions:
                share_partition = SharePartition(topic.topic_id, row.partition_index)
                key = TopicPartition(self._names[share_partition.topic_id], share_partition.partition)
                if row.error_code:
                    errors.append(KafkaError.of(row.error_code, row.error_message, [key]))
                    continue
                fetched += [
                    FetchedJobs(link, share_partition, batch, response.acquisition_lock_timeout_ms)
                    for batch in acquired_batches(key, row, acquired_ranges(row))
                ]
        return fetched, errors

    def _topic(self, topic_id: bytes) -> str:
        """Returns the name of a topic for log lines, or its id if the name is not known."""
        return self._names.get(topic_id) or f"topic id {to_text(topic_id)}"

    def _log_lost(self, jobs: int, reason: object) -> None:
        """Logs that the acceptance of processed jobs may be lost, so that the group may deliver these jobs again."""
        if jobs:
            logger.warning(
                "client: no broker acknowledged %d finished jobs of %s: %s; the group may deliver these jobs again",
                jobs,
                self._described,
                str(reason) or repr(reason),  # a CancelledError has no text
            )

    def _log_refused(self, response: Any, field: str) -> None:
        """Logs refused acknowledgements of jobs that the worker accepted automatically."""
        for topic in response.responses:
            for row in topic.partitions:
                code = getattr(row, field)
                if code:
                    logger.warning(
                        "client: %s: the broker refused acknowledgements of %s-%d: %s; the group delivers the jobs "
                        "again",
                        self._described,
                        self._topic(topic.topic_id),
                        row.partition_index,
                        KafkaError.of(code),
                    )
