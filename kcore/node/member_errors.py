"""The background errors of a member, which the program sees at its next call."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.errors import KafkaError

if TYPE_CHECKING:
    from kcore.client.consumer_coordinator.base import GroupMemberMachine

logger = logging.getLogger(__name__)


class MemberErrors:
    """The errors of a member since the program's last call. Only the first of them is kept.

    Args:
        machine: the state machine of the member. Its fatal error does not end.
    """

    def __init__(self, machine: GroupMemberMachine) -> None:
        self._machine = machine
        self._pending: BaseException | None = None
        self._logged = ""

    def add(self, error: BaseException) -> None:
        """Logs an error, unless it equals the last logged error, and keeps it for the next call of the program.

        The log line is necessary because it may take long until the program's next call.
        """
        failure = f"{type(error).__name__}: {error}"
        if failure != self._logged:
            self._logged = failure
            logger.error(
                "client: %s failed: %s; %s",
                self._machine.settings.name_of(self._machine.member_id),
                failure,
                "close the member and join again"
                if error is self._machine.fatal
                else "the next operation of the member raises the error",
                exc_info=None if isinstance(error, KafkaError) else error,
            )
        if self._pending is None:
            self._pending = error

    def take(self) -> BaseException | None:
        """Returns and removes the pending error; None: there is none."""
        error, self._pending = self._pending, None
        return error

    def check(self) -> None:
        """Raises the pending error, which only one call raises, or the fatal error, which every call raises."""
        error = self.take()
        if error is not None:
            raise error
        if self._machine.fatal is not None:
            raise self._machine.fatal.with_traceback(None)
