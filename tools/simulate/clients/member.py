"""Members of classic groups and of consumer groups: kcore's member state machines, which read and commit."""

from __future__ import annotations

from typing import Any

from kcore.assignors import get
from kcore.client.consumer_coordinator.base import GroupMemberMachine
from kcore.client.consumer_coordinator.classic import ClassicMember
from kcore.client.consumer_coordinator.consumer import ConsumerMember
from kcore.client.consumer_coordinator.interface import Assigned, MemberSettings, Outgoing, Revoked
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.offset_commit import OffsetCommitRequest
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.batches import visible_records
from tools.simulate.channel import Channel
from tools.simulate.clients.client import Client
from tools.simulate.history import OffsetWrite

POLL_MS = 400
FETCH_VERSION = 12
OFFSETS_VERSION = 8


class Member(Client):
    """A consumer in a group.

    Options: group, topics, protocol, assignors, static, auto_commit_ms, reads (False if the member fetches no records),
    and listener_ms (the longest duration of its rebalance listener).
    """

    machine: GroupMemberMachine

    def start(self) -> None:
        """Implements `Client.start`."""
        options = self.options
        static = options.get("static", False)
        classic = self.world.protocols.get(self.name, options["protocol"]) == "classic"
        settings = MemberSettings(
            group_id=options["group"],
            topics=tuple(options["topics"]),
            assignors=tuple(get(each) for each in options.get("assignors", ("range",))) if classic else (),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            heartbeat_interval_ms=options.get("heartbeat_ms", 1_000),
            instance_id=f"static-{self.name}" if static else None,
            auto_commit_ms=options.get("auto_commit_ms"),
        )
        now_ms = self.kernel.now_ms
        if classic:
            self.machine = ClassicMember(settings, now_ms, consumed=self._consumed)
        else:
            member_id = f"member-{self.name}-{self.life}"
            self.machine = ConsumerMember(settings, now_ms, consumed=self._consumed, member_id=member_id)
        self.owned: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._stable_epoch = -1
        self._handling = False
        self._wakes_ms = -1
        self._polls_ms = 0
        self._channel = self.channel()
        self._reader: Channel | None = self.channel() if options.get("reads", True) else None
        self._fetching: set[TopicPartition] = set()
        self.later(0, self.step)

    @property
    def closed(self) -> bool:
        """True if this client is no longer a member."""
        return bool(self.machine.closed)

    @property
    def member_id(self) -> str:
        """The id of this member."""
        return str(self.machine.member_id)

    @property
    def skipped_epochs(self) -> bool:
        """True for a classic member that has missed generations, has joined again, and does not know its assignment
        yet.

        As in Kafka, a consumer group lets this member join with its old id. Until its SyncGroup, it may own
        partitions of other members.
        """
        machine = self.machine
        return isinstance(machine, ClassicMember) and machine.epoch > self._stable_epoch + 1

    @property
    def epoch(self) -> int:
        """The member epoch, or the generation of the group."""
        return int(self.machine.epoch)

    def _consumed(self) -> dict[TopicPartition, int]:
        return dict(self._positions)

    def step(self) -> None:
        """Advances the state machine and sends its requests."""
        machine, now_ms = self.machine, self.kernel.now_ms
        if machine.closed:
            self.kill()
            return
        if now_ms >= self._polls_ms:
            self._polls_ms = now_ms + POLL_MS
            machine.poll(now_ms)
        machine.advance(now_ms)
        if machine.state.name == "STABLE":  # type: ignore[attr-defined]
            self._stable_epoch = machine.epoch
        error = machine.take_error()
        if error is not None and (machine.closed or machine.state.name in ("FATAL", "FAILED")):  # type: ignore[attr-defined]
            self.world.trace(f"{self.name} ended: {error}")
            self.kill()
            self.world.kernel.after(2_000, self.world.restart_client, self.name, self.life)
            return
        for outgoing in machine.take_requests():
            self._carry(outgoing)
        if machine.event is not None and not self._handling:
            self._handling = True
            self.later(self.choice.choice([0, 0, 10, self.options.get("listener_ms", 300)]), self._handle_event)
        if self._reader is not None:
            self._read()
        wake_ms = machine.wake_ms()
        idle_ms = POLL_MS if self._reader is not None or machine.event is not None else 5_000
        # A floor of 1 ms, as in the driver of the real client: a machine may be due until a response arrives.
        next_ms = now_ms + idle_ms if wake_ms is None else min(max(wake_ms, now_ms + 1), now_ms + idle_ms)
        if not now_ms < self._wakes_ms <= next_ms:
            self._wakes_ms = next_ms
            self.kernel.at(next_ms, self._woken, next_ms)

    def _woken(self, when_ms: int) -> None:
        if self.alive and when_ms == self._wakes_ms:
            self._wakes_ms = -1
            wake_ms = self.machine.wake_ms() if self._reader is None else when_ms
            if wake_ms is None or wake_ms <= when_ms or wake_ms > when_ms + POLL_MS:
                self.step()
            else:  # a response has changed the due time
                self._wakes_ms = wake_ms
                self.kernel.at(wake_ms, self._woken, wake_ms)

    def _handle_event(self) -> None:
        self._handling = False
        machine = self.machine
        event = machine.event
        if event is None:
            return
        if isinstance(event, Assigned):
            for partition in event.partitions:
                self.owned[partition] = event.epoch
        else:
            if isinstance(event, Revoked) and self.options.get("commits_at_revocation", True):
                offsets = {p: self._positions[p] for p in event.partitions if p in self._positions}
                if offsets:
                    machine.commit(offsets, self.kernel.now_ms, timeout_ms=5_000)
            for partition in event.partitions:
                self.owned.pop(partition, None)
                self._positions.pop(partition, None)
        machine.event_done(None, self.kernel.now_ms)
        self.step()

    def _carry(self, outgoing: Outgoing) -> None:
        request = outgoing.request
        noted: dict[TopicPartition, OffsetWrite] = {}
        if isinstance(request, OffsetCommitRequest):
            for topic in request.topics:
                for row in topic.partitions:
                    committed = TopicPartition(topic.name, row.partition_index)
                    write = OffsetWrite(row.committed_offset, self.kernel.now_ms)
                    noted[committed] = self.history.commit(request.group_id, committed, write)
        known = noted and self.world.observer.is_member(self.options["group"], request)

        def done(result: Any) -> None:
            if noted and not isinstance(result, Exception):
                self._note_commit(noted, result, known)
            if not self.alive:
                return
            if isinstance(result, Exception):
                self.machine.failed(outgoing, result, self.kernel.now_ms)
            else:
                self.machine.received(outgoing, result, self.kernel.now_ms)
                if self._reader is None and self._rests():
                    return  # the next heartbeat is scheduled already
            self.step()

        self._channel.send(request, done, at_most=outgoing.at_most, timeout_ms=outgoing.timeout_ms)

    def _rests(self) -> bool:
        """Returns True if a response has left nothing to do before the next heartbeat."""
        machine = self.machine
        return machine.state.name == "STABLE" and machine.event is None and self._wakes_ms > self.kernel.now_ms  # type: ignore[attr-defined]

    def _note_commit(self, noted: dict[TopicPartition, OffsetWrite], response: Any, known: Any) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                write = noted[TopicPartition(topic.name, row.partition_index)]
                write.done_ms = self.kernel.now_ms
                write.result = self.world.outcome(row.error_code, write.sent_ms)

    # ---- reading

    def _read(self) -> None:
        for partition in sorted(self.owned):
            if partition not in self._fetching and self.machine.fetchable(partition):
                self._fetching.add(partition)
                if partition in self._positions:
                    self._fetch(partition)
                else:
                    self._look_up(partition)

    def _look_up(self, partition: TopicPartition) -> None:
        """Fetches the committed offset of a newly assigned partition."""
        assert self._reader is not None, "the member reads"
        topics = [OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])]
        group = OffsetFetchRequestGroup(group_id=self.options["group"], topics=topics)

        def done(response: Any) -> None:
            self._fetching.discard(partition)
            if not self.alive or isinstance(response, Exception) or partition not in self.owned:
                return
            (found,) = response.groups
            if found.error_code or found.topics[0].partitions[0].error_code:
                return
            offset = found.topics[0].partitions[0].committed_offset
            self.world.checks.saw_committed(self.options["group"], partition, offset, sent_ms)
            self._positions[partition] = max(offset, 0)

        sent_ms = self.kernel.now_ms
        self._reader.send(OffsetFetchRequest(groups=[group], require_stable=True), done, OFFSETS_VERSION)

    def _fetch(self, partition: TopicPartition) -> None:
        assert self._reader is not None, "the member reads"
        offset = self._positions[partition]
        request = fetch_request(partition, offset, committed=self.options.get("read_committed", False))

        def done(response: Any) -> None:
            self._fetching.discard(partition)
            if not self.alive or isinstance(response, Exception) or self._positions.get(partition) != offset:
                return
            if not response.responses:
                return  # the whole request was refused
            row = response.responses[0].partitions[0]
            if row.error_code:
                if row.error_code == 1:  # OFFSET_OUT_OF_RANGE: records were deleted
                    self._positions[partition] = row.log_start_offset if row.log_start_offset > offset else offset
                return
            self.world.checks.saw_end(partition, row.high_watermark, sent_ms)
            records, after = visible_records(row, offset, self.options.get("read_committed", False))
            for at, value in records:
                self.world.checks.saw_record(partition, at, value, self.options.get("read_committed", False))
            self._positions[partition] = after

        sent_ms = self.kernel.now_ms
        self._reader.send(request, done, FETCH_VERSION)

    # ---- the end

    def shut_down(self) -> None:
        """Implements `Client.shut_down`: leaves the group."""
        if self.alive and not self.machine.closed:
            self.machine.close(self.kernel.now_ms, timeout_ms=5_000)
            self.step()

    def kill(self) -> None:
        """Implements `Client.kill`."""
        super().kill()
        self.owned.clear()


def fetch_request(partition: TopicPartition, offset: int, *, committed: bool, wait_ms: int = 0) -> FetchRequest:
    """Builds a Fetch of one partition, without a session."""
    row = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=1 << 14)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 15,
        isolation_level=int(committed),
        session_epoch=-1,
        topics=[FetchTopic(topic=partition.topic, partitions=[row])],
    )
