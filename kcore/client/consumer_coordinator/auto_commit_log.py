"""The log of failed automatic commits."""

from __future__ import annotations

import logging

from kcore.client.consumer_coordinator.interface import Commit, MemberSettings

logger = logging.getLogger(__name__)


class AutoCommitLog:
    """The log of a member's failed automatic commits. The errors of these commits are only logged, and never raised.

    Args:
        settings: the member's settings.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._logged = ""

    def add(self, commit: Commit, member_id: str) -> None:
        """Logs the error of a completed commit, unless the previous commit failed with the same error.

        Args:
            commit: a completed automatic commit.
            member_id: the member's id; "" if it has none.
        """
        failure = "" if commit.error is None else f"{type(commit.error).__name__}: {commit.error}"
        changed, self._logged = failure != self._logged, failure
        if failure and changed:
            logger.warning(
                "client: an automatic commit of %s failed: %s; if other members get the partitions now, they process "
                "the records after the last commit again",
                self._settings.name_of(member_id),
                failure,
            )
