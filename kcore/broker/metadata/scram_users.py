"""The users of SCRAM and PLAIN in the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.security.scram import DEFAULT_FORM, SaltForm, ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics


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

    def usual_form(self, mechanism: ScramMechanism) -> SaltForm:
        """Returns the most frequent form of credentials for a mechanism; the larger one if two are equally frequent."""
        forms = self._topics.image.scram_forms.get(mechanism)
        if not forms:
            return DEFAULT_FORM
        return SaltForm(*max(forms.items(), key=lambda item: (item[1], item[0]))[0])
