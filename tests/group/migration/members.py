"""Classic consumers with a cooperative assignor, as members of classic or consumer groups."""

from __future__ import annotations

from typing import Any

from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.protocol.consumer_protocol import Assignment, Subscription, TopicPartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.group.consumer.members import GROUP, World
from tests.group.context import Call

REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class ClassicClient:
    """A classic consumer that joins, syncs, sends heartbeats, and keeps its partitions until a response revokes them
    (KIP-429).

    As a leader it distributes every topic's partitions in turn, except those that another member still uses.
    """

    def __init__(self, world: World, topics: list[str], name: str = "classic") -> None:
        self.world = world
        self.topics = topics
        self.name = name
        self.member_id = ""
        self.generation_id = -1
        self.uses: set[tuple[str, int]] = set()
        self.waiting: Call | None = None  # a join or a sync without a response
        self.phase = "join"
        self.rejoins_at_once = False

    # ---- requests

    def subscription(self) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.uses):
            owned.setdefault(topic, []).append(partition)
        return Subscription(
            topics=self.topics,
            owned_partitions=[TopicPartition(topic=topic, partitions=parts) for topic, parts in owned.items()],
            generation_id=self.generation_id,
        ).encode_versioned(3)

    def join(self) -> Call:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="fair", metadata=self.subscription())],
        )
        return self.world.send(JoinGroupApi(self.world.shards, self.world.config), request, client_id=self.name)

    def sync(self, response: Any) -> Call:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="fair",
            assignments=self.assignments(response.members) if response.leader == self.member_id else [],
        )
        return self.world.send(SyncGroupApi(self.world.shards), request, client_id=self.name)

    def assignments(self, members: Any) -> list[SyncGroupRequestAssignment]:
        """Returns the assignment that a cooperative leader computes. A partition that must move has no owner in this
        generation.
        """
        wanted = {member.member_id: Subscription.decode_versioned(member.metadata)[0] for member in members}
        used = {
            (entry.topic, partition): member_id
            for member_id, subscription in wanted.items()
            for entry in subscription.owned_partitions
            for partition in entry.partitions
        }
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wanted}
        for name in sorted({topic for subscription in wanted.values() for topic in subscription.topics}):
            topic = self.world.topics.by_name(name)
            readers = sorted(member_id for member_id, subscription in wanted.items() if name in subscription.topics)
            for partition in range(topic.partitions if topic is not None else 0):
                owner = readers[partition % len(readers)]
                if used.get((name, partition), owner) == owner:
                    given[owner].setdefault(name, []).append(partition)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=Assignment(
                    assigned_partitions=[TopicPartition(topic=t, partitions=p) for t, p in topics.items()]
                ).encode_versioned(3),
            )
            for member_id, topics in given.items()
        ]

    # ---- life

    def step(self) -> None:
        """Sends the request that the client's current state calls for."""
        if self.waiting is not None:
            if not self.waiting.done:
                return
            response, self.waiting = self.waiting.response, None
            if self.phase == "join":
                self._joined(response)
            else:
                self._synced(response)
        elif self.phase == "join":
            self.waiting = self.join()
        else:
            self.beat()

    def _joined(self, response: Any) -> None:
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.generation_id = response.member_id, response.generation_id
            self.phase = "sync"
            self.waiting = self.sync(response)
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        else:
            self._refused(response.error_code)

    def _synced(self, response: Any) -> None:
        if response.error_code:
            self._refused(response.error_code)
            return
        assigned = (
            Assignment.decode_versioned(response.assignment)[0].assigned_partitions if response.assignment else ()
        )
        after = {(entry.topic, partition) for entry in assigned for partition in entry.partitions}
        gave_up = self.uses - after
        self.uses = after
        # KIP-429: a member that revoked partitions joins again at once, so that they get a new owner.
        self.phase = "join" if gave_up else "work"

    def beat(self) -> None:
        """Sends a heartbeat. Its response may make the client join again."""
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation_id, member_id=self.member_id)
        response = self.world.call(HeartbeatApi(self.world.shards), request, client_id=self.name)
        if response.error_code:
            self._refused(response.error_code)

    def _refused(self, code: int) -> None:
        self.phase = "join"
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return  # it keeps its partitions until a later response
        self.uses = set()
        self.generation_id = -1
        if code not in REJOIN:
            self.member_id = ""

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
        self.world.call(LeaveGroupApi(self.world.shards), request, client_id=self.name)
        self.uses = set()
