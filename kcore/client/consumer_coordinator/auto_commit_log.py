"""The log lines about commits that a member makes itself."""

from __future__ import annotations

import logging

from kcore.client.consumer_coordinator.interface import Commit

logger = logging.getLogger(__name__)


class AutoCommitLog:
    """Logs the errors of a member's automatic commits, because no call of the user's code gets them.

    Args:
        group_id: the member's group.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._logged = ""

    def add(self, commit: Commit, member_id: str) -> None:
        """Logs the error of a completed commit, unless it repeats that of the commit before.

        Args:
            commit: the commit.
            member_id: the member's id.
        """
        text = "" if commit.error is None else f"{type(commit.error).__name__}: {commit.error}"
        changed, self._logged = text != self._logged, text
        if text and changed:
            logger.warning(
                "client: an automatic commit of member %s of group %s failed: %s; another owner of the partitions "
                "would process the records after the last commit again",
                member_id, self._group_id, text,
            )  # fmt: skip
