from typing import Protocol, final

class _Clock(Protocol):
    def monotonic_ms(self) -> int: ...

@final
class LocalLease:
    """A node's lease, measured by the node's own clock.

    A node of a cluster checks the lease before and after the decision of every request, so the check is compiled. On
    the system's clock the check reads the coarse clock, which may be some ms late; `Timing` has a margin for this.

    Args:
        clock: the node's clock.
        deadline_ms: the monotonic time in ms at which this node stops to serve.

    Attributes:
        deadline_ms: the monotonic time in ms at which this node stops to serve; each renewal of the lease moves it.
        ended: True after this registration of the node was fenced.
    """

    deadline_ms: int
    ended: bool
    def __init__(self, clock: _Clock, deadline_ms: int) -> None: ...
    def is_valid(self) -> bool:
        """Returns True if this node may serve now: it is not fenced, and the deadline has not come."""
