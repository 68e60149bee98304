"""Takes over and gives up the partitions and coordinators of this node, as their leaders in the metadata log change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kcore.broker.cluster.read_ahead import ReadAhead, wait_ms
from kcore.log.errors import FencedWriteError, LogError
from kcore.log.interface import PartitionKey
from kcore.log.storage import Leadership
from kcore.printable import counted
from kcore.process_logging import log_failure
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.broker.cluster.handover import Releases
    from kcore.broker.cluster.membership import Membership
    from kcore.broker.data.shared_partitions import SharedPartitions
    from kcore.broker.metadata.topics import Topics
    from kcore.log.shared_engine import SharedLogEngine
    from kcore.runtime.cluster import Leader
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicInfo
    from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

RETRY_MS = 100
ADOPTED_AT_ONCE = 200
"""Maximum number of partitions that this node takes over in one step. It reads them from the store together."""


class LeadershipKeeper(MetadataListener):
    """The part of a node that follows the leaders in the metadata. It takes over the logs of the partitions that this
    node leads (`SharedLogEngine.adopt`), and releases all other logs.

    On the controller, it also stages the changes of leaders in the store. The same commit writes these changes and
    their metadata records. After this commit, every node takes over and releases logs in the same way.

    Args:
        log: the node's log engine.
        topics: the metadata.
        partitions: the partitions of this node.
        pipeline: commits staged writes before a partition is given up.
        membership: this node's registration; an earlier incarnation's partitions are not taken over.
        wheel: the node's timers.
        shards_of: returns the coordinators of an internal topic, or None.
        on_given_up: called with each partition that this node does not lead any more.
        releases: reports the partitions that were given up for a planned move.

    Attributes:
        moves: the number of partitions that this node has taken over or given up.
        fenced_commits: the number of commits that the store refused because this node did not lead a partition any
            more.
    """

    # The round with new leaders has decisions of the metadata shard, which every component sees before the commit.
    allows_background_commit = False

    __slots__ = (
        "_changed",
        "_led",
        "_log",
        "_membership",
        "_on_given_up",
        "_partitions",
        "_pipeline",
        "_read_ahead",
        "_refused",
        "_releases",
        "_releasing",
        "_retrying",
        "_shards_of",
        "_topics",
        "_wheel",
        "fenced_commits",
        "moves",
    )

    def __init__(
        self,
        log: SharedLogEngine,
        topics: Topics,
        partitions: SharedPartitions,
        *,
        pipeline: CommitPipeline,
        membership: Membership,
        wheel: TimerWheel,
        shards_of: Callable[[str], Shards[Any] | None],
        on_given_up: Callable[[PartitionKey], None],
        releases: Releases,
    ) -> None:
        self._log = log
        self._topics = topics
        self._partitions = partitions
        self._pipeline = pipeline
        self._membership = membership
        self._wheel = wheel
        self._shards_of = shards_of
        self._on_given_up = on_given_up
        self._releases = releases
        self._changed: dict[PartitionKey, None] = {}  # partitions whose leader may have changed
        self._led: dict[PartitionKey, tuple[str, int]] = {}  # partition -> topic and leader epoch
        self._refused: dict[PartitionKey, int] = {}  # partition -> the last epoch that the store refused
        self._read_ahead = ReadAhead(log, shards_of)
        # planned moves whose next leader reads ahead -> the time until which this node waits for it
        self._releasing: dict[PartitionKey, int] = {}
        self._retrying = False
        self.moves = 0
        self.fenced_commits = 0

    @property
    def led(self) -> dict[PartitionKey, tuple[str, int]]:
        """The partitions that this node leads, with their topics and leader epochs."""
        return self._led

    @property
    def is_applied(self) -> bool:
        """True if this node leads exactly the partitions that the replayed metadata assigns to it."""
        return not self._changed

    # ---- the metadata's listener

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Creates the partitions of a topic in the store, if this node has decided the creation."""
        self.on_partitions_added(topic, 0)

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """Creates new partitions in the store, if this node has decided their creation."""
        self._begin()
        for index in range(first, topic.partitions):
            key = PartitionKey(topic.topic_id, index)
            self._changed[key] = None
            if self._topics.deciding:
                leader = self._leader(key)
                assert leader is not None, f"{topic.name}-{index} was created with a leader"
                self._log.create(key, leader.node_id, leader.epoch)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Removes the partitions of a topic from the store, if this node has decided the deletion."""
        self._begin()
        for index in range(topic.partitions):
            key = PartitionKey(topic.topic_id, index)
            self._changed[key] = None
            if self._topics.deciding:
                self._log.remove(key)

    def on_leader_changed(self, topic: TopicInfo, partition: int) -> None:
        """Changes the leader of a partition in the store, if this node has decided the change."""
        self._begin()
        key = PartitionKey(topic.topic_id, partition)
        self._changed[key] = None
        if self._topics.deciding:
            leader = self._leader(key)
            assert leader is not None, f"{topic.name}-{partition} has a new leader"
            self._log.move(key, leader.node_id, leader.epoch, leader.epoch - 1)

    def on_move_planned(self, topic: TopicInfo, partition: int) -> None:
        """Marks the partition as changed for the next `apply`. In `apply`, the current leader gives the partition up,
        and the next leader begins to read its log.
        """
        self._begin()
        self._changed[PartitionKey(topic.topic_id, partition)] = None

    def on_brokers_changed(self) -> None:
        """Marks every partition as changed if this node leads no partition.

        If the change is the registration of this node, the node can lead partitions from now on.
        """
        self._begin()
        if not self._led:
            self.consider_all()

    def consider_all(self) -> None:
        """Marks every partition as changed, so that the next `apply` considers it."""
        for topic in self._topics.all():
            for index in range(topic.partitions):
                self._changed[PartitionKey(topic.topic_id, index)] = None

    def _begin(self) -> None:
        if self._topics.deciding:
            self._pipeline.enlist(self)

    def _leader(self, key: PartitionKey) -> Leader | None:
        return self._topics.image.leader(key.topic_id, key.partition)

    # ---- the round of a decision (`Participant`)

    def seal(self) -> None:
        """Does nothing: the changes are staged with the decision."""

    def committed(self) -> None:
        """Schedules `apply`, which runs after the current round of requests has ended."""
        self._wheel.add(self._wheel.now_ms, self.apply)

    def failed(self, error: LogError) -> None:
        """Marks every partition as changed, because the decided changes were not written."""
        self.consider_all()
        self._wheel.add(self._wheel.now_ms, self.apply)

    # ---- leaders in effect

    def apply(self) -> None:
        """Gives up partitions that have other leaders now, and takes over partitions that this node leads now.

        Repeats failed steps later.
        """
        if not self._changed:
            return
        if self._pipeline.has_uncommitted or self._pipeline.uncertain:
            self._pipeline.commit()  # also reads the result of an earlier round from the store again
        if self._pipeline.has_uncommitted or self._pipeline.uncertain or self._pipeline.interrupted:
            self._retry()
            return
        changed = self._changed
        try:
            self._changed = {}
            self._apply(changed)
            if self._changed:
                self._retry()
        except BaseException as error:
            # Every step can be repeated. Without a repetition, a partition could stay without a leader forever.
            self._changed = {**changed, **self._changed}
            if not isinstance(error, Exception):
                raise
            self._retry()
            log_failure(
                logger,
                error,
                "cluster: node %d cannot put the new leaders of %s (first: %r) into effect, and tries "
                "again; if this repeats, report the error",
                self._membership.lease.holder,
                counted(len(changed), "partitions"),
                next(iter(changed), None),
            )

    def _apply(self, changed: Iterable[PartitionKey]) -> None:
        """Puts the leaders of partitions into effect. After an exception, it can be called again."""
        adopted: list[Leadership] = []
        for key in changed:
            leader = self._mine(key)
            led = self._led.get(key)
            if leader is None:
                self._releases.finished(key)
            successor = self._topics.image.successor(*key)
            released = leader is not None and successor is not None
            if led is not None and leader is not None and leader.epoch == led[1] and released and self._waits(key):
                continue
            if led is not None and (leader is None or leader.epoch != led[1] or released):
                self._give_up(key)
            if leader is None:
                self._prepare(key, successor)
                continue
            if released:
                self._releases.add(key, leader.epoch)
            elif key not in self._led:
                adopted.append(Leadership(key, leader.epoch))
        self._releases.report()
        later = adopted[ADOPTED_AT_ONCE:]
        if later:  # in steps, between which the node serves requests
            self._changed.update(dict.fromkeys(partition.key for partition in later))
            self._wheel.add(self._wheel.now_ms, self.apply)
        self._adopt(adopted[:ADOPTED_AT_ONCE])

    def _waits(self, key: PartitionKey) -> bool:
        """Returns True while this node delays giving up a partition, so that the next leader has time to read its
        log.
        """
        now_ms = self._wheel.now_ms
        until_ms = self._releasing.get(key)
        if until_ms is None:
            shards = self._shards_of(self._led[key][0])
            shard = None if shards is None else shards.get(key.partition)
            until_ms = now_ms if shard is None else now_ms + wait_ms(shard)
            if until_ms > now_ms:
                self._wheel.add(until_ms, lambda: self._consider(key))
                self._releasing[key] = until_ms
        if until_ms > now_ms:
            return True
        self._releasing.pop(key, None)
        return False

    def _consider(self, key: PartitionKey) -> None:
        self._changed[key] = None
        self.apply()

    def _prepare(self, key: PartitionKey, successor: int | None) -> None:
        """Begins to read a coordinator's log ahead if this node is the partition's next leader.

        Otherwise, discards the part of the log that this node has read ahead.
        """
        topic = self._topics.by_id(key.topic_id)
        if topic is not None and successor == self._membership.lease.holder and not self._membership.fenced:
            self._read_ahead.begin(topic.name, key)
        else:
            self._read_ahead.discard(key)

    def _retry(self) -> None:
        if not self._retrying:
            self._wheel.add(self._wheel.now_ms + RETRY_MS, self._again)
            self._retrying = True

    def _again(self) -> None:
        self._retrying = False
        self.apply()

    def _mine(self, key: PartitionKey) -> Leader | None:
        """Returns the leader of a partition if it is this incarnation of this node, else None."""
        lease = self._membership.lease
        broker = self._topics.image.brokers.get(lease.holder)
        if self._membership.fenced or broker is None or broker.epoch != lease.epoch or broker.fenced:
            return None
        leader = self._leader(key)
        if leader is None or leader.node_id != lease.holder or leader.epoch <= self._refused.get(key, -1):
            return None
        return leader

    def _adopt(self, partitions: list[Leadership]) -> None:
        """Takes over those partitions for which the store confirms that this node leads them."""
        while partitions:
            try:
                logs = self._log.adopt(partitions)
            except FencedWriteError as error:
                if error.node or not error.partitions:
                    self._membership.lost()
                    return
                # A newer record of these partitions exists and will be replayed.
                refused = set(error.partitions)
                partitions = [partition for partition in partitions if partition.key not in refused]
                continue
            except LogError as error:
                logger.warning(
                    "cluster: node %d cannot take over the logs of %s (first: %r): %s; the node tries again; if "
                    "this repeats, check the cluster's store",
                    self._membership.lease.holder,
                    counted(len(partitions), "partitions"),
                    partitions[0].key,
                    error,
                )
                self._changed.update(dict.fromkeys(partition.key for partition in partitions))
                return
            break
        else:
            return
        for (key, epoch), log in zip(partitions, logs, strict=True):
            partition = self._partitions.lead(key, log, epoch)
            if partition is None:
                self._read_ahead.discard(key)
                self._log.release(key)
                continue
            self._read_ahead.hand_to(key, partition)
            shards = self._shards_of(partition.topic)
            if shards is not None:
                shards.load(key.partition, epoch)
            self._led[key] = partition.topic, epoch  # last, so that an interrupted take-over is repeated
            self.moves += 1

    def _give_up(self, key: PartitionKey) -> None:
        """Unloads the coordinator of a partition, and releases its log."""
        topic, epoch = self._led[key]
        self._releasing.pop(key, None)
        shards = self._shards_of(topic)
        if shards is not None:
            shards.unload(key.partition)
        self._on_given_up(key)
        self._partitions.resign(key)
        self._log.release(key)
        del self._led[key]  # last, so that an interrupted release is repeated
        self.moves += 1
        logger.info(
            "cluster: node %d no longer leads partition %s-%d, which it led in leader epoch %d",
            self._membership.lease.holder,
            topic,
            key.partition,
            epoch,
        )

    def give_up_all(self) -> None:
        """Gives up every partition, because this incarnation has ended or stops."""
        self._changed.update(dict.fromkeys(self._led))
        self._changed.update(dict.fromkeys(self._read_ahead))
        self.apply()

    def refused(self, error: FencedWriteError) -> None:
        """Schedules `apply` to give up the partitions for which the store has refused a commit.

        The store refuses a commit if this node no longer leads one of its partitions. If the store has fenced the
        node itself, ends this incarnation of the node instead.
        """
        self.fenced_commits += 1
        if error.node:
            self._membership.lost()
            return
        named = error.partitions or tuple(self._led)
        for key in named:
            if key in self._led:
                topic, epoch = self._led[key]
                logger.warning(
                    "cluster: the store refused a commit, because node %d no longer leads partition %s-%d, which it "
                    "led in leader epoch %d; the clients of the failed requests find the new leader and try again",
                    self._membership.lease.holder,
                    topic,
                    key.partition,
                    epoch,
                )
                self._refused[key] = epoch
                self._changed[key] = None
        self._wheel.add(self._wheel.now_ms, self.apply)
        # The record of the new leader is in the metadata log already.
        self._membership.refresh_soon()
