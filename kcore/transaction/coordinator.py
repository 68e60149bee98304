"""The transaction coordinator of a node: its shards, and the questions that partitions and groups ask it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.runtime.shard import ShardState
from kcore.runtime.shards import Shards
from kcore.runtime.topics import MetadataListener
from kcore.transaction import adding
from kcore.transaction.shard import TOPIC_NAME, TransactionShard
from kcore_ext.transaction.coordinator import CoordinatorCore

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shard import Shard
    from kcore.runtime.topics import TopicInfo
    from kcore.transaction.markers import Results, TopicPartition
    from kcore.transaction.transaction import Transaction

logger = logging.getLogger(__name__)


class TransactionCoordinator(CoordinatorCore):
    """All transaction shards of a node. There are none until `__transaction_state` is made, at the first use.

    `add` and `run` are compiled, and do what `add_generic` and `run_generic` do.

    Args:
        make: makes the shard of a partition of `__transaction_state`.
        pipeline: commits what is decided.

    Attributes:
        shards: the shards; None before there is a topic for them.
    """

    __slots__ = ("_make", "_pipeline")

    shards: Shards[TransactionShard] | None

    def __init__(self, make: Callable[[int], Shard[TransactionShard]], pipeline: CommitPipeline) -> None:
        self._make = make
        self._pipeline = pipeline
        self.shards = None
        self.taken = NO_ERROR

    # ---- life

    def start(self, partitions: int, leader_epoch: int) -> None:
        """`__transaction_state` is there: loads its shards, all led by this node."""
        self.shards = Shards(TOPIC_NAME, partitions, self._make, self._pipeline)
        for index in range(partitions):
            self.shards.load(index, leader_epoch)

    def stop(self) -> None:
        """The topic is gone: its creation never became durable."""
        shards, self.shards = self.shards, None
        for shard in shards or ():
            shard.unload()

    # ---- shards

    def of(self, transactional_id: str) -> Shard[TransactionShard]:
        """The shard of a transactional id.

        Raises:
            KafkaError: NOT_COORDINATOR if this node does not own it.
        """
        if self.shards is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self.shards.of(transactional_id)

    def run_generic(self, api: Api[Any, Any], context: RequestContext, transactional_id: str, request: Any) -> Any:
        """See `run`."""
        try:
            shard = self.of(transactional_id)
        except KafkaError as error:
            return api.error(context, request, error.code)
        result = shard.run(api, context, request)
        shard.machine.send_markers()
        return result

    def get(self, transactional_id: str) -> Transaction | None:
        """What is known of an id now; None if nothing is, or its shard is not here. For people and tests."""
        try:
            shard = self.of(transactional_id)
        except KafkaError:
            return None
        return shard.machine.transactions.get(transactional_id)

    # ---- questions of partitions and groups (KIP-890)

    def add_generic(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Iterable[TopicPartition],
        client_version: int,
    ) -> ErrorCode:
        """See `add`."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        try:
            shard = self.of(transactional_id)
        except KafkaError as error:
            return error.code
        if shard.state is not ShardState.ACTIVE:
            return shard.refusal
        try:
            code = shard.machine.add(shard, transactional_id, producer_id, producer_epoch, places, client_version)
        except Exception as error:
            return self.add_failed(shard, transactional_id, error)
        return NO_ERROR if code is None else self.refused(code)

    def add_failed(self, shard: Shard[TransactionShard], transactional_id: str, error: Exception) -> ErrorCode:
        """What is answered if a bug kept partitions from being added."""
        logger.error("%s-%d: adding to %r failed", shard.topic, shard.index, transactional_id, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def refused(self, code: int) -> ErrorCode:
        """What is answered if partitions were not added, or nothing had to be written."""
        return ErrorCode.NOT_COORDINATOR if code == ErrorCode.KAFKA_STORAGE_ERROR else ErrorCode(code)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, places: Iterable[TopicPartition]
    ) -> Results:
        """Whether each partition is in a producer's transaction; nothing is changed."""
        if not transactional_id:
            return dict.fromkeys(places, ErrorCode.INVALID_REQUEST)
        try:
            shard = self.of(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(places, error.code)
        if shard.state is not ShardState.ACTIVE:
            return dict.fromkeys(places, shard.refusal)
        transaction = shard.machine.transactions.get(transactional_id)
        code = adding.verify(transaction, producer_id, producer_epoch)
        if code is not ErrorCode.NONE:
            return dict.fromkeys(places, code)
        assert transaction is not None, "it was verified"
        return {place: adding.verify_partition(transaction, *place) for place in places}


class TransactionTopic(MetadataListener):
    """Loads the transaction shards once their topic is there: at the start, or when it is first needed.

    Args:
        coordinator: has the shards.
        leader_epoch: the epoch in which this node leads them.
    """

    __slots__ = ("_coordinator", "_leader_epoch")

    def __init__(self, coordinator: TransactionCoordinator, leader_epoch: int) -> None:
        self._coordinator = coordinator
        self._leader_epoch = leader_epoch

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Loads a shard for each of its partitions."""
        if topic.name == TOPIC_NAME:
            self._coordinator.start(topic.partitions, self._leader_epoch)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Its creation was taken back."""
        if topic.name == TOPIC_NAME:
            self._coordinator.stop()
