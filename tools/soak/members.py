"""Members of groups of both protocols, and the state they share: owners, epochs and offsets."""

from __future__ import annotations

import random
import time
import uuid
from abc import abstractmethod

from tools.soak.ledger import Ledger
from tools.soak.wire import RetryError, Worker

WORK, WORK_PARTITIONS = "work", 6
SESSION_MS, REBALANCE_MS = 3_000, 5_000
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS = 22, 25, 27
MEMBER_ID_REQUIRED = 79
FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH = 110, 113
GROUP_ID_NOT_FOUND = 69
CLASSIC_EXPELLED = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS})
EXPELLED = frozenset({UNKNOWN_MEMBER, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND})


class Group:
    """The shared state of one group's members; `ledger.lock` protects it.

    Attributes:
        epoch: the highest generation or epoch that a durable response named.
        owners: (epoch, partition) -> the member that owned the partition in this epoch.
        leases: partition -> (the owner, the monotonic time in s before which the coordinator cannot expel the owner).
        acknowledged: partition -> the highest offset whose commit was acknowledged.
        sent: partition -> the highest offset that was sent.
    """

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.epoch = -1
        self.owners: dict[tuple[int, int], str] = {}
        self.leases: dict[int, tuple[str, float]] = {}
        self.acknowledged = dict.fromkeys(range(WORK_PARTITIONS), -1)
        self.sent = dict.fromkeys(range(WORK_PARTITIONS), -1)

    def claim(self, member: str, epoch: int, partitions: set[int], floor: int) -> None:
        """Records the assignment in a response to a member.

        Reports a violation if the epoch has decreased, or if a partition had another owner in the same epoch.

        Args:
            member: the member's id.
            epoch: the generation or epoch in the response.
            partitions: all partitions that the member owns now.
            floor: the group's highest generation or epoch when the request was sent.
        """
        with self.ledger.lock:
            if epoch < floor:
                self.ledger.violation("epoch", f"{self.name}: {member} is given epoch {epoch} after {floor}")
            self.epoch = max(self.epoch, epoch)
            for partition in partitions:
                owner = self.owners.setdefault((epoch, partition), member)
                if owner != member:
                    self.ledger.violation(
                        "two owners", f"{self.name}: partition {partition} in epoch {epoch}: {owner} and {member}"
                    )

    def lease(self, member: str, partitions: set[int], until: float) -> None:
        """Records that a member owns exactly `partitions`, and cannot be expelled before `until`."""
        now = time.monotonic()
        with self.ledger.lock:
            for partition, (holder, valid) in list(self.leases.items()):
                if partition in partitions and holder != member and now < valid:
                    self.ledger.violation(
                        "two owners",
                        f"{self.name}: {partition} goes to {member}, {holder} has it {valid - now:.1f} s more",
                    )
                if holder == member and partition not in partitions:
                    del self.leases[partition]
            for partition in partitions:
                self.leases[partition] = (member, until)

    def check_offset(self, partition: int, offset: int, floor: int) -> None:
        """Checks the committed offset that a new owner has fetched.

        The offset must not exceed the highest sent offset. It must be at least `floor`, the highest offset that was
        acknowledged before the fetch.
        """
        with self.ledger.lock:
            if not floor <= offset <= self.sent[partition]:
                self.ledger.violation(
                    "lost offset",
                    f"{self.name}: partition {partition} has offset {offset}; acknowledged was {floor}, "
                    f"sent was {self.sent[partition]}",
                )


class Member(Worker):
    """A member of either protocol: commits the next offsets of its partitions."""

    pause_s = 0.25

    def __init__(self, name: str, port: int, ledger: Ledger, rng: random.Random, group: Group) -> None:
        super().__init__(name, port, ledger)
        self.rng = rng
        self.group = group
        self.member_id = ""
        self.epoch = -1
        self.owned: set[int] = set()
        self.offsets: dict[int, int] = {}

    def commit(self, expelled: frozenset[int]) -> bool:
        """Commits the next offset of each partition. Returns False if the group no longer knows this member."""
        for partition in self.owned - self.offsets.keys():
            floor = self.group.acknowledged[partition]
            offset = self.committed_offsets(self.group.name, WORK, [partition])[partition]
            self.group.check_offset(partition, offset, floor)
            self.offsets[partition] = offset
        if not self.owned:
            return True
        newest = self.group.epoch
        following = {partition: self.offsets[partition] + 1 for partition in sorted(self.owned)}
        with self.ledger.lock:
            for partition, offset in following.items():
                self.group.sent[partition] = max(self.group.sent[partition], offset)
        codes = self.commit_offsets(self.group.name, WORK, following, self.member_id, self.epoch)
        for (partition, offset), code in zip(following.items(), codes, strict=True):
            if code:
                if self.checked("OffsetCommit", code, expelled):
                    return False
                continue
            self.offsets[partition] = offset
            with self.ledger.lock:
                self.group.acknowledged[partition] = max(self.group.acknowledged[partition], offset)
                self.ledger.count("commits of members")
                if self.fenced_by(newest):
                    self.ledger.violation(
                        "fencing", f"{self.name}: a commit of epoch {self.epoch} is taken in epoch {newest}"
                    )
        return True

    @abstractmethod
    def fenced_by(self, epoch: int) -> bool:
        """Returns True if the coordinator must refuse this member's commits once the group has reached `epoch`."""

    def lost(self) -> None:
        """Discards the remembered offsets, because the server may have executed a lost commit."""
        self.offsets = {}


class ClassicMember(Member):
    """A member of the classic protocol; the leader gives each member an equal share."""

    def fenced_by(self, epoch: int) -> bool:
        """Returns True if `epoch` is a newer generation, because each generation fences the earlier ones."""
        return epoch > self.epoch

    def step(self) -> None:
        """Joins, or sends a heartbeat and commits."""
        if self.epoch < 0:
            self.join_group()
            return
        if self.rng.random() < 0.01:
            self.forget(keep_id=False)  # the coordinator detects the loss when the session ends
            return
        body = {"group_id": self.group.name, "generation_id": self.epoch, "member_id": self.member_id}
        code = self.checked("Heartbeat", self.call("Heartbeat", 3, body)["error_code"], CLASSIC_EXPELLED)
        if code or not self.commit(CLASSIC_EXPELLED):
            self.forget(keep_id=code != UNKNOWN_MEMBER)

    def forget(self, keep_id: bool) -> None:
        """Gives up all partitions. The next step joins."""
        self.epoch, self.owned, self.offsets = -1, set(), {}
        if not keep_id:
            self.member_id = ""

    def join_group(self) -> None:
        """Joins and syncs until the member is stable in a generation."""
        floor = self.group.epoch
        response = self.call(
            "JoinGroup",
            5,
            {
                "group_id": self.group.name,
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "member_id": self.member_id,
                "protocol_type": "work",
                "protocols": [{"name": "share", "metadata": b""}],
            },
        )
        code = self.checked("JoinGroup", response["error_code"], CLASSIC_EXPELLED | {MEMBER_ID_REQUIRED})
        if code:
            self.member_id = response["member_id"] if code == MEMBER_ID_REQUIRED else ""
            raise RetryError(code)
        self.member_id = response["member_id"]
        generation = response["generation_id"]
        shares = []
        if response["leader"] == self.member_id:
            members = sorted(member["member_id"] for member in response["members"])
            for number, member in enumerate(members):
                share = ",".join(map(str, range(number, WORK_PARTITIONS, len(members))))
                shares.append({"member_id": member, "assignment": share.encode()})
        body = {
            "group_id": self.group.name,
            "generation_id": generation,
            "member_id": self.member_id,
            "assignments": shares,
        }
        response = self.call("SyncGroup", 3, body)
        code = self.checked("SyncGroup", response["error_code"], CLASSIC_EXPELLED)
        if code:
            self.forget(keep_id=code != UNKNOWN_MEMBER)
            raise RetryError(code)
        self.owned = {int(part) for part in response["assignment"].decode().split(",") if part}
        self.epoch = generation
        self.offsets = {}
        self.group.claim(self.member_id, generation, self.owned, floor)
        self.ledger.count("classic joins")


class ConsumerMember(Member):
    """A member of the KIP-848 protocol."""

    def __init__(self, name: str, port: int, ledger: Ledger, rng: random.Random, group: Group, topic_id: str) -> None:
        super().__init__(name, port, ledger, rng, group)
        self.topic_id = topic_id
        self.epoch = 0

    def fenced_by(self, epoch: int) -> bool:
        """Returns False, because the coordinator can still accept a commit of a member with an earlier epoch."""
        return False

    def step(self) -> None:
        """Joins or sends a heartbeat, then commits."""
        if self.epoch > 0 and self.rng.random() < 0.01:
            self.leave()
            return
        joins = self.epoch == 0
        if joins:
            self.give_up()
            if not self.member_id:
                self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        floor = self.group.epoch if joins else self.epoch
        began = time.monotonic()
        response = self.call(
            "ConsumerGroupHeartbeat",
            1,
            {
                "group_id": self.group.name,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "rebalance_timeout_ms": REBALANCE_MS if joins else -1,
                "subscribed_topic_names": [WORK] if joins else None,
                "topic_partitions": [{"topic_id": self.topic_id, "partitions": sorted(self.owned)}]
                if self.owned
                else [],
            },
        )
        if self.checked("ConsumerGroupHeartbeat", response["error_code"], EXPELLED):
            self.epoch = 0
            self.give_up()
            raise RetryError(response["error_code"])
        self.epoch = response["member_epoch"]
        if response["assignment"] is not None:
            assigned = {index for topic in response["assignment"]["topic_partitions"] for index in topic["partitions"]}
            if assigned != self.owned:
                self.ledger.count("assignments")
            self.owned = assigned
            self.offsets = {index: at for index, at in self.offsets.items() if index in assigned}
        self.group.claim(self.member_id, self.epoch, self.owned, floor)
        self.group.lease(self.member_id, self.owned, began + SESSION_MS / 1000)
        if not self.commit(EXPELLED):
            self.offsets = {}

    def give_up(self) -> None:
        """Gives up all partitions."""
        self.owned, self.offsets = set(), {}
        self.group.lease(self.member_id, set(), 0.0)

    def leave(self) -> None:
        """Leaves the group. The next step joins with another member id."""
        self.give_up()
        body = {"group_id": self.group.name, "member_id": self.member_id, "member_epoch": -1}
        self.member_id, self.epoch = "", 0
        response = self.call("ConsumerGroupHeartbeat", 1, body)
        self.checked("ConsumerGroupHeartbeat", response["error_code"], EXPELLED)
