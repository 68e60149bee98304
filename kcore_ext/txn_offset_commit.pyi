from typing import Any

from kcore_ext.commit_shapes import CommitShapes

class TxnOffsetCommitCore(CommitShapes):
    """What `TxnOffsetCommitApi` does for a commit in which nothing is refused, and for every other one as its own
    `handle_any`, `go_on` and `decide_any` say.

    Args:
        shards: the group shards.
        topics: the cluster's topics.
        verifier: asks the transaction coordinator: see `kcore.group.offsets.verifier.TransactionVerifier`.
        authorizer: who may do what; with one, the checks in front are the plain ones.
        verified: the code of a transaction that is as it should be: that very object.
        request_type: the class of the request.
        topic_type: the class of a topic of the request.
        record_type: the named tuple (key, value, version) that a record is.
        classic: the class of classic groups, and their state Empty: in that they take what nobody in particular
            commits.
    """

    _verifier: Any

    def __init__(
        self,
        shards: Any,
        topics: Any,
        verifier: Any,
        authorizer: Any,
        verified: Any,
        request_type: type,
        topic_type: type,
        record_type: type,
        classic: tuple[type, Any],
    ) -> None: ...
    def handle(self, context: Any, request: Any) -> Any:
        """Serves one request: see `kcore.runtime.Api.handle`."""

    def decide(self, machine: Any, context: Any, request: Any) -> Any:
        """Decides a `CommitPlan` within its shard: see `kcore.runtime.Api.decide`."""
