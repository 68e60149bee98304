"""The decisions about one heartbeat. A long heartbeat has several, so that other requests run between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class HeartbeatPart(Enum):
    """The part of a heartbeat that one decision handles."""

    WHOLE = "everything"
    MEMBER = "adds or updates the member"
    TARGET = "computes the target assignment"
    ASSIGNMENT = "gives the member its new assignment"

    @property
    def computes_target(self) -> bool:
        """True if the decision computes a new target assignment when one is due."""
        return self is not HeartbeatPart.MEMBER

    @property
    def assigns(self) -> bool:
        """True if the decision also does what follows the computation of a target."""
        return self in (HeartbeatPart.WHOLE, HeartbeatPart.ASSIGNMENT)

    @property
    def follows_join(self) -> bool:
        """True if an earlier decision about the same heartbeat has added or updated the member."""
        return self in (HeartbeatPart.TARGET, HeartbeatPart.ASSIGNMENT)


SEPARATE_PARTS: Final = (HeartbeatPart.MEMBER, HeartbeatPart.TARGET, HeartbeatPart.ASSIGNMENT)
"""The decisions about a long heartbeat, in their order. Each decision repeats the checks of the earlier ones."""
