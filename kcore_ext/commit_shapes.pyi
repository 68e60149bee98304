from typing import Any

from kcore_ext.message_shape import Shape

class CommitShapes:
    """Topics and partitions that were committed, up to 1024 combinations of them, with what is known of the topics and
    with the response that accepts them all. A combination counts only as long as the cluster's topics are the very
    ones that it was made of. The base of what `OffsetCommitApi` and `TxnOffsetCommitApi` do.

    A subclass has `error(context, request, code)`: the response that says `code` of every partition.

    Args:
        shards: the group shards.
        topics: the cluster's topics.
        authorizer: who may read groups and topics; with one, the checks in front are the plain ones.
        request: the request's shape, whose first field is the topics.
        topic: the shape of a topic of it: name, partitions, and topic_id if it has one.
        record_type: the named tuple that a record is.

    Attributes:
        remembered: how many combinations are remembered.
    """

    _shards: Any
    _topics: Any
    _authorizer: Any

    def __init__(
        self, shards: Any, topics: Any, authorizer: Any, request: Shape, topic: Shape, record_type: type
    ) -> None: ...
    @property
    def remembered(self) -> int: ...
