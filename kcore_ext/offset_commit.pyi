from typing import Any

from kcore_ext.commit_shapes import CommitShapes
from kcore_ext.consumer_records import ConsumerRecords
from kcore_ext.offset_block import CommitPlan, OffsetBlock

class OffsetCommitCore(CommitShapes):
    """What `OffsetCommitApi` does for a commit in which nothing is refused, and for every other one as its own
    `handle_any`, `decide_any` and `take_any` say.

    Args:
        shards: the group shards.
        topics: the cluster's topics.
        authorizer: who may read groups and topics; with one, the checks in front are the plain ones.
        request_type: the class of the request.
        topic_type: the class of a topic of the request.
        record_type: the named tuple (key, value, version) that a record is.
        classic: the class of classic groups, and their states Empty and Stable: in these it is known whom they take.
    """

    def __init__(
        self,
        shards: Any,
        topics: Any,
        authorizer: Any,
        request_type: type,
        topic_type: type,
        record_type: type,
        classic: tuple[type, Any, Any],
    ) -> None: ...
    def handle(self, context: Any, request: Any) -> Any:
        """Serves one request: see `kcore.runtime.Api.handle`."""

    def decide(self, machine: Any, context: Any, request: Any) -> Any:
        """Decides a `CommitPlan` within its shard: see `kcore.runtime.Api.decide`."""

    def recall(self, context: Any, plan: CommitPlan) -> None:
        """Gives a plan in which nothing is refused the response that is remembered for it."""

def replay_block(shard: Any, offset: int, producer_id: int, records: OffsetBlock[Any] | ConsumerRecords) -> None:
    """Applies the offsets of a commit to a group shard, as `replay_commit` does with each of its records; records of a
    consumer group as they say themselves.

    Args:
        shard: the state to change.
        offset: where the first record stands in the shard's log; the others follow.
        producer_id: the producer in whose transaction they stand: then `replay_pending_block` applies them. -1: none.
        records: the offsets; or the records, which stand in no transaction.

    Raises:
        ValueError: the records already stand somewhere.
    """
