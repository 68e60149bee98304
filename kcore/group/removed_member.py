"""The log line about a member that a group removes because of a timeout."""

from __future__ import annotations

import logging
from typing import Protocol

from kcore.process_logging import fields

logger = logging.getLogger(__name__)


class Client(Protocol):
    """The client of a member."""

    @property
    def client_id(self) -> str:
        """The client id of its requests."""

    @property
    def client_host(self) -> str:
        """The client's IP address."""


def log_removed_member(group_id: str, member_id: str, client: Client, reason: str) -> None:
    """Logs a member that the group removes, and the next step of an operator.

    Call this function before the removal. If there is no memory for the line, its exception prevents the removal, and
    the member's timer fires again later.

    Args:
        group_id: the group that removes the member.
        member_id: the removed member.
        client: the member's client.
        reason: the timeout, such as "it sent no heartbeat for 45000 ms".
    """
    if logger.isEnabledFor(logging.INFO):
        logger.info(
            "group %s: removed member %s of client %r at %s: %s; its partitions move to other members; if the client "
            "still runs, look for long processing, pauses or network errors in its log",
            *(group_id, member_id, client.client_id, client.client_host, reason),
            extra=fields(group=group_id, member=member_id, client_id=client.client_id),
        )
