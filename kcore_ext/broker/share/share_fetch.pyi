from typing import Any, final

from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.share.delayed_share_fetch import DelayedShareFetch
from kcore.broker.share.sessions import TopicIdPartition
from kcore.broker.share.share_partitions import SharePartitions
from kcore.broker.share.states import SharePartitionState
from kcore.protocol.authorizer import Authorizer
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kcore.runtime.api import RequestContext
from kcore_ext.runtime.outcome import Pending

class SessionCore:
    """The compiled base of a share session; `ShareSession` documents the attributes."""

    epoch: int
    partitions: dict[TopicIdPartition, bool]

    def advance(self) -> None:
        """Increases the session's epoch for the next request. The epoch after the highest epoch is 1."""

@final
class ShareFetchPending(Pending):
    """The pending response of a ShareFetch request.

    The request waits for records, or until its acknowledgements are durable.

    Attributes:
        operation: the operation in the purgatory that waits for records; None: the request does not wait for records.
        gone: True after the connection was closed. The request then acquires no records.
    """

    operation: DelayedShareFetch | None
    gone: bool

    def __init__(self, api: Any, context: RequestContext, request: Any) -> None: ...
    def abandon(self) -> None:
        """Stops waiting for records, because the connection was closed."""

class ShareFetchFastPath:
    """The fast path of ShareFetch.

    Args:
        api: the generic path. Its `fetch_after` continues a request whose acknowledgements are complete.
        share_partitions: the share partitions and sessions of the node.
        room: the memory budget of responses.
        authorizer: checks permissions; None allows all requests.
        permissions: `Operation.READ`, `ResourceType.GROUP`, `ResourceType.TOPIC`.
        active: the state `ACTIVE`, in which share partitions deliver records.
        codes: `ErrorCode`.
        failure: the response after an internal error. It must not be changed.
    """

    def __init__(
        self,
        api: Any,
        share_partitions: SharePartitions,
        room: FetchMemoryBudget,
        authorizer: Authorizer | None,
        permissions: tuple[Any, Any, Any],
        *,
        active: SharePartitionState,
        codes: type[ErrorCode],
        failure: ShareFetchResponse,
    ) -> None: ...
    @property
    def served(self) -> int:
        """The number of requests that the fast path has served."""

    def serve(self, context: RequestContext, request: ShareFetchRequest) -> Any:
        """Returns the response, a `Pending` for it, or None if the generic path must serve the request."""
