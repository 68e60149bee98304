from typing import Protocol, final

class _Clock(Protocol):
    def monotonic_ms(self) -> int: ...

@final
class LocalLease:
    """A node's lease, measured by the node's own clock.

    A node of a cluster checks the lease before and after the decision of every request, so the check is compiled. With
    a `SystemClock`, the check reads the system's coarse clock, which may be some ms late. `Timing` has a margin for
    this delay.

    Args:
        clock: the node's clock.
        deadline_ms: the monotonic time in ms at which this node stops serving requests.

    Attributes:
        deadline_ms: the monotonic time in ms at which this node stops serving requests. Each renewal of the lease sets
            a later time.
        ended: True after this registration of the node was fenced.
    """

    deadline_ms: int
    ended: bool
    def __init__(self, clock: _Clock, deadline_ms: int) -> None: ...
    def is_valid(self) -> bool:
        """Returns True if this node may serve requests now: it is not fenced, and the deadline is in the future."""
