"""The users of SCRAM and PLAIN in the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcore.broker.metadata.topics import Topics
    from kcore.security.scram import SaltForm, ScramCredential, ScramMechanism


class ScramUsers:
    """Looks up users in the present metadata image.

    Args:
        topics: gives access to the metadata image.
    """

    __slots__ = ("_topics",)

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns a user's credential for a mechanism, or None."""
        return self._topics.image.scram.get(user, {}).get(mechanism)

    def forms(self, mechanism: ScramMechanism) -> Mapping[SaltForm, int]:
        """Returns the forms of the credentials for a mechanism -> number of users."""
        return self._topics.image.scram_forms.get(mechanism, {})
