"""The SCRAM credentials of users in the metadata, which SCRAM and PLAIN authentication use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics
    from kcore.security.decoys import SaltForms
    from kcore.security.scram import ScramCredential, ScramMechanism


class ScramUsers:
    """The users with SCRAM credentials in the current metadata image.

    Args:
        topics: gives access to the metadata image.
    """

    __slots__ = ("_topics",)

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns a user's credential for a mechanism, or None."""
        return self._topics.image.scram.get(user, {}).get(mechanism)

    def forms(self, mechanism: ScramMechanism) -> SaltForms | None:
        """Returns the forms (salt length, iteration count, kind of salt) of all credentials for a mechanism.

        Returns None if there has never been a credential for this mechanism.
        """
        return self._topics.image.scram_forms.get(mechanism)
