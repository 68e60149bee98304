"""Workers of share groups: kcore's share membership and share session."""

from __future__ import annotations

from typing import Any

from kcore.client.share_consumer import (
    Acknowledged,
    Acknowledgement,
    ShareMembership,
    SharePartition,
    ShareSession,
    ShareState,
    acquired_ranges,
)
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.clients.client import NETWORK, Client

WAIT_MS = 500


class ShareWorker(Client):
    """A member of a share group that accepts, releases and rejects records.

    Options: group, topics, and careless (the probability that it does not acknowledge acquired records, or does so
    late).
    """

    def start(self) -> None:
        """Implements `Client.start`."""
        self.membership = ShareMembership(self.options["group"], self.options["topics"])
        self.membership.member_id = f"worker-{self.name}-{self.life}"
        self._session = ShareSession(self.membership.group_id, self.membership.member_id)
        self._beats = self.channel()
        self._data = self.channel()
        self.spawn(self._send_heartbeats())
        self.spawn(self._work())

    async def _send_heartbeats(self) -> None:
        membership, kernel = self.membership, self.kernel
        while membership.state is not ShareState.LEFT:
            if membership.state is ShareState.FAILED:
                error = membership.error
                raise AssertionError(f"{self.name}: the share membership failed: {error!r}")
            try:
                response = await self._beats.call(membership.request(), 1)
            except NETWORK as error:
                membership.failed(error, kernel.now_ms)
            else:
                membership.received(response, kernel.now_ms)
            await kernel.sleep(max(1, membership.heartbeat_at_ms - kernel.now_ms))

    async def _work(self) -> None:
        while self.alive:
            assignment = self.membership.assignment
            if not assignment:
                await self.kernel.sleep(100)
                continue
            try:
                await self._round(assignment)
            except NETWORK:
                self._session.reset(response_lost=True)
                await self.kernel.sleep(50)

    async def _round(self, assignment: frozenset[SharePartition]) -> None:
        session = self._session
        if session.must_close:
            await self._data.call(session.close(), 1)
            session.must_close = False
        pending = {partition: {one.first: one.kind for one in kinds} for partition, kinds in session.pending.items()}
        sent_ms = self.kernel.now_ms
        response = await self._data.call(session.fetch(assignment, 8, WAIT_MS), 1)
        if not self._succeeded(response):
            await self.kernel.sleep(50)
            return
        acquired: list[tuple[SharePartition, int]] = []
        refused = False
        for topic in response.responses:
            for row in topic.partitions:
                refused = refused or bool(row.error_code)
                partition = SharePartition(topic.topic_id, row.partition_index)
                if partition in pending and not row.acknowledge_error_code and not row.error_code:
                    self._confirm(partition, pending.pop(partition))
                if row.error_code:
                    continue
                for first, last, count in acquired_ranges(row):
                    for offset in range(first, last + 1):
                        group_id = self.membership.group_id
                        self.world.checks.saw_delivery(group_id, self._named(partition), offset, count, sent_ms)
                        acquired.append((partition, offset))
        for partition, kinds in pending.items():  # a partition without errors may be missing from the response
            listed = any(
                topic.topic_id == partition.topic_id and row.partition_index == partition.partition
                for topic in response.responses
                for row in topic.partitions
            )
            if not listed:
                self._confirm(partition, kinds)
        if acquired:
            await self._process(acquired)
        elif refused:  # kcore's worker pauses, too
            await self.kernel.sleep(50)

    async def _process(self, acquired: list[tuple[SharePartition, int]]) -> None:
        await self.kernel.sleep(self.choice.choice([0, 0, 20, 300]))
        if not self.world.calm and self.choice.random() < self.options.get("careless", 0.05):
            await self.kernel.sleep(self.choice.choice([1_000, 40_000]))  # the locks may expire
            if self.choice.random() < 0.5:
                return  # this worker forgets the records: other members get them when their locks expire
        decided: dict[SharePartition, dict[int, int]] = {}
        for partition, offset in acquired:
            draw = self.choice.random()
            if self.world.calm or draw < 0.9:
                kind = Acknowledgement.ACCEPT
            elif draw < 0.97:
                kind = Acknowledgement.RELEASE
            else:
                kind = Acknowledgement.REJECT
                self.history.share(self.membership.group_id, self._named(partition), offset).rejected = True
            decided.setdefault(partition, {})[offset] = kind
        if self.choice.random() < 0.5:
            for partition, kinds in decided.items():
                for offset, decision in kinds.items():
                    self._session.add(partition, offset, Acknowledgement(decision))
            return
        acknowledged = {
            partition: [Acknowledged(offset, offset, kind) for offset, kind in kinds.items()]
            for partition, kinds in decided.items()
        }
        response = await self._data.call(self._session.acknowledge(acknowledged), 1)
        if self._succeeded(response):
            for topic in response.responses:
                for row in topic.partitions:
                    if not row.error_code:
                        partition = SharePartition(topic.topic_id, row.partition_index)
                        self._confirm(partition, decided[partition])

    def _succeeded(self, response: Any) -> bool:
        code = response.error_code
        if code:
            self._session.reset(response_lost=code != ErrorCode.SHARE_SESSION_NOT_FOUND)
            return False
        self._session.succeeded()
        return True

    def _confirm(self, partition: SharePartition, kinds: dict[int, int]) -> None:
        for offset, kind in kinds.items():
            if kind == Acknowledgement.ACCEPT:
                record = self.history.share(self.membership.group_id, self._named(partition), offset)
                record.accepted_ms = self.kernel.now_ms

    def _named(self, partition: SharePartition) -> TopicPartition:
        return TopicPartition(self.world.topic_names[partition.topic_id], partition.partition)

    def at_rest(self) -> str | None:
        """Implements `Client.at_rest`."""
        return None if self.membership.state is ShareState.STABLE else f"state {self.membership.state}"
