from typing import Any

from kcore_ext.transaction_core import CoordinatorCore

class EndTxnCore:
    """What `EndTxnApi` does from v5 on for a transaction that is open and ended by its own producer, and for every
    other request as its own `handle_any` and `decide_any` say.

    Args:
        coordinator: the node's transactions.
        authorizer: who may do what; with one, the checks in front are the plain ones.
        request_type: the class of the request.
        response_type: the class of the response.
    """

    _coordinator: Any
    _authorizer: Any

    def __init__(
        self, coordinator: CoordinatorCore, authorizer: Any, request_type: type, response_type: type
    ) -> None: ...
    def handle(self, context: Any, request: Any) -> Any:
        """Serves one request: see `kcore.runtime.Api.handle`."""

    def decide(self, machine: Any, context: Any, request: Any) -> Any:
        """Decides it within its shard: see `kcore.runtime.Api.decide`."""
