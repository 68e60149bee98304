from collections.abc import Callable
from typing import Any

from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.share.share_partitions import SharePartitions
from kcore.broker.share.states import SharePartitionState
from kcore.protocol.authorizer import Authorizer
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kcore.runtime.api import RequestContext

class ShareFetchFastPath:
    """The fast path of ShareFetch.

    Args:
        api: the generic path. Its `fetch_after` continues a request whose acknowledgements are complete.
        share_partitions: the share partitions and sessions of the node.
        enabled: returns True if share groups are enabled.
        room: the memory for responses.
        authorizer: decides about permissions; None allows all.
        permissions: `Operation.READ`, `ResourceType.GROUP`, `ResourceType.TOPIC`.
        active: the state of share partitions that deliver records.
        codes: `ErrorCode`.
        pending: the class of deferred responses.
        failure: the response after an internal error. It must not be changed.
    """

    def __init__(
        self,
        api: Any,
        share_partitions: SharePartitions,
        enabled: Callable[[], bool],
        room: FetchMemoryBudget,
        authorizer: Authorizer | None,
        permissions: tuple[Any, Any, Any],
        *,
        active: SharePartitionState,
        codes: type[ErrorCode],
        pending: Any,
        failure: ShareFetchResponse,
    ) -> None: ...
    @property
    def served(self) -> int:
        """The number of requests that the fast path has served."""

    def serve(self, context: RequestContext, request: ShareFetchRequest) -> Any:
        """Returns the response, a `Pending` of it, or None if the generic path must serve the request."""
