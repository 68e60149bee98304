"""A client that violates rules: stale epochs, other clients' identities, malformed bytes. Its requests have no
effect.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kcore.errors import KafkaError
from kcore.node.requests import build_batch, produce_request
from kcore.protocol.compression import CompressionType
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.clients.client import NETWORK, Client
from tools.simulate.history import REFUSED

FORBIDDEN_OFFSET = 987_654_321


class RuleBreaker(Client):
    """A client whose requests must be refused. Options: groups, share_groups, topic, interval_ms."""

    def start(self) -> None:
        """Implements `Client.start`."""
        self._channel = self.channel()
        self._count = 0
        self.spawn(self._run())

    async def _run(self) -> None:
        attacks = [
            self._stale_heartbeat,
            self._stale_commit,
            self._zombie_produce,
            self._zombie_end,
            self._stale_transactional_commit,
            self._foreign_leave,
            self._foreign_acknowledgement,
            self._noise,
            self._stale_sync,
        ]
        while self.alive and not self.world.calm:
            with suppress(*NETWORK, KafkaError):
                await self.choice.choice(attacks)()
            await self.kernel.sleep(self.choice.randrange(1, 2 * self.options["interval_ms"]))

    def _group(self) -> str:
        return str(self.choice.choice(self.options["groups"]))

    def _identity(self, group: str) -> tuple[str, int]:
        """Returns a member of the group with a wrong epoch, or an unknown member."""
        members = self.world.observer.members(group)
        if not members or self.choice.random() < 0.3:
            return "nobody", self.choice.choice([0, 1, 7])
        member, epoch = self.choice.choice(members)
        return member, epoch + self.choice.choice([-1, 1, 5]) if epoch > 1 else epoch + 3

    def _expect_refusal(self, request: str, code: int) -> None:
        self.world.checks.require(code != 0, "fenced", f"{request} was accepted")

    async def _stale_heartbeat(self) -> None:
        group = self._group()
        member, epoch = self._identity(group)
        before = self.world.observer.loads()
        response = await self._channel.call(HeartbeatRequest(group_id=group, generation_id=epoch, member_id="nobody"))
        if before is not None and before == self.world.observer.loads():  # as in Kafka, a loading shard accepts any
            self._expect_refusal(f"a heartbeat of {member}", response.error_code)

    async def _stale_commit(self) -> None:
        group = self._group()
        member, epoch = self._identity(group)
        if member != "nobody":
            epoch += 1_000  # no member reaches this epoch before the request arrives
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=FORBIDDEN_OFFSET)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=self.options["topic"], partitions=[row])],
        )
        response = await self._channel.call(request, 9)
        self._expect_refusal(f"a commit of {member} at {epoch}", response.topics[0].partitions[0].error_code)

    def _zombie(self) -> tuple[str, int, int] | None:
        """Returns a transactional id, its producer id, and an epoch before the current one."""
        known = [(name, each) for name, each in self.world.transactional.items() if each.epoch >= 2]
        if not known:
            return None
        name, producer = self.choice.choice(known)
        return name, producer.producer_id, self.choice.randrange(0, producer.epoch - 1)

    async def _zombie_produce(self) -> None:
        zombie = self._zombie()
        if zombie is None:
            return
        name, producer_id, epoch = zombie
        partition, transactional = TopicPartition(self.options["topic"], 0), True
        if self.choice.random() < 0.7:  # the coordinator does not see a batch outside of transactions
            known = self.world.observer.partitions_of(producer_id, epoch)
            if known:
                partition, transactional = self.choice.choice(known), False
        self._count += 1
        value = f"{self.name}.{self.life}:{self._count}".encode()
        write = self.history.write(value, partition, self.name)
        write.result = REFUSED
        batch = build_batch(
            [(self.world.node.clock.wall_ms(), None, value, ())],
            CompressionType.NONE,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=transactional,
        )
        request = produce_request({partition: batch}, -1, 30_000, name if transactional else None)
        response = await self._channel.call(request, 11)
        code = response.responses[0].partition_responses[0].error_code
        self._expect_refusal(f"a produce of {name} at epoch {epoch}", code)

    async def _zombie_end(self) -> None:
        zombie = self._zombie()
        if zombie is None:
            return
        name, producer_id, epoch = zombie
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.choice.random() < 0.5,
        )
        response = await self._channel.call(request, self.choice.choice([3, 5]))
        self._expect_refusal(f"the end of {name} at epoch {epoch}", response.error_code)

    async def _stale_transactional_commit(self) -> None:
        zombie = self._zombie()
        if zombie is None:
            return
        name, producer_id, epoch = zombie
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=FORBIDDEN_OFFSET)
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=self._group(),
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=-1,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=self.options["topic"], partitions=[row])],
        )
        response = await self._channel.call(request)
        code = response.topics[0].partitions[0].error_code
        self._expect_refusal(f"an offset of {name} at epoch {epoch}", code)

    async def _foreign_leave(self) -> None:
        request = LeaveGroupRequest(group_id=self._group(), members=[MemberIdentity(member_id="nobody")])
        response = await self._channel.call(request)
        code = response.error_code or response.members[0].error_code
        self._expect_refusal("the leave of an unknown member", code)

    async def _stale_sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self._group(), generation_id=1_000, member_id="nobody", protocol_type="consumer"
        )
        response = await self._channel.call(request)
        self._expect_refusal("the sync of an unknown member", response.error_code)

    async def _foreign_acknowledgement(self) -> None:
        groups = self.options.get("share_groups")
        if not groups:
            return
        topic_id = next(each for each, name in self.world.topic_names.items() if name == self.options["share_topic"])
        batch = AcknowledgementBatch(first_offset=0, last_offset=50, acknowledge_types=[1])
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=groups[0],
            member_id=f"nobody-{self._count}",
            share_session_epoch=1,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        )
        response: Any = await self._channel.call(request, 1)
        self._expect_refusal("an acknowledgement without a session", response.error_code)

    async def _noise(self) -> None:
        size = self.choice.choice([1, 10, 200])
        data = self.choice.randbytes(size)
        if self.choice.random() < 0.5:
            data = size.to_bytes(4, "big") + data
        self._channel.send_bytes(data)
        await self.kernel.sleep(5)
        self._channel.cut(self.choice.choice([0, 10_000]))
