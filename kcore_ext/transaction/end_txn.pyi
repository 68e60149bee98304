from typing import Any

from kcore_ext.transaction.coordinator import CoordinatorCore

class EndTxnFastPath:
    """The fast path of EndTxn. It serves versions from 5 on, for an open transaction with the same producer id and
    epoch.

    Args:
        api: the API, for responses that wait for a commit.
        coordinator: the node's transaction coordinator.
        authorizer: checks the permission to WRITE the transactional id; None allows all requests.
        permission: `Operation.WRITE`, `ResourceType.TRANSACTIONAL_ID`.
        request: the class of the request.
        response: the class of the response.
    """

    def __init__(
        self,
        api: Any,
        coordinator: CoordinatorCore,
        authorizer: Any,
        permission: tuple[Any, Any],
        *,
        request: type,
        response: type,
    ) -> None: ...
    @property
    def served(self) -> int:
        """The number of requests that the fast path served."""

    def serve(self, context: Any, request: Any) -> Any:
        """Prepares the end of the transaction, and writes the markers of partitions of this node.

        Returns:
            The response, a `Pending` that waits for the commit, or None if the fast path declines the request and has
            changed nothing.
        """
