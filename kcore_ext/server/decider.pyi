from collections.abc import Callable
from typing import Any

from kcore_ext.runtime.lease import LocalLease

class Decider:
    """The functions that decide the requests of an API.

    Attributes:
        fast: the API's fast path, called with the same arguments before `handle`; None if it has none.
        handle: the decision: (context, request) -> a response, a `Pending`, or None for no response.
        lease: the lease of a node of a cluster; None if the node needs none. `fast` is called only while it is valid.
        checked: replaces a response of `fast` if the lease may end before it is sent: (context, request, response) ->
            the response, an error, or a `Pending` that is checked at its completion.
    """

    fast: Callable[[Any, Any], Any] | None
    handle: Callable[[Any, Any], Any]
    lease: LocalLease | None
    checked: Callable[[Any, Any, Any], Any] | None

    def decide(self, context: Any, request: Any) -> Any:
        """Decides a request by `fast`, or else by `handle`; returns its result."""
