"""The commits of a member, and the membership to which they belong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from kcore.client.consumer_coordinator.base import GroupMemberMachine
from kcore.client.consumer_coordinator.interface import Commit, Outgoing
from kcore.client.consumer_coordinator.ownership import NOT_IN_GROUP
from kcore.errors import CommitFailedError, KcoreError
from kcore.node._async.backend import Event, Stepper, now_ms
from kcore.node._async.calls import AsyncCalls
from kcore.node.arguments import check_offsets
from kcore.node.requests import to_commit
from kcore.node.types import GroupMetadata, Offsets, Partition, as_partition, as_partitions


class AsyncMemberCommits:
    """The commits of a member.

    Commits belong to the membership that the user's code has seen last. The member's present membership may be newer,
    because the member can lose its partitions and join again in the background.

    Args:
        member: waits for the end of the commits' callbacks before it closes.
        calls: the node's requests.
        machine: the state machine of the member.
        guard: the lock of the state machine.
        stepper: runs the steps of the state machine.
        send: sends a request, and passes its response to the state machine.
    """

    def __init__(
        self,
        member: object,
        calls: AsyncCalls,
        machine: GroupMemberMachine,
        guard: AbstractContextManager[Any],
        stepper: Stepper,
        send: Callable[[Outgoing], None],
    ) -> None:
        self._member = member
        self._calls = calls
        self._machine = machine
        self._guard = guard
        self._stepper = stepper
        self._send = send
        self._seen_losses = 0  # the machine's count of losses that the user's code has seen
        self._seen_identity: tuple[str, int] | None = None  # member id and epoch at that time

    def note_membership(self) -> None:
        """Records that the user's code has seen the member's present state. The caller holds the guard."""
        machine = self._machine
        self._seen_losses = machine.ownership.losses
        if machine.epoch >= 0:
            self._seen_identity = machine.member_id, machine.epoch

    def group_metadata(self) -> GroupMetadata:
        """Returns the metadata of the membership that the user's code has seen last.

        Raises:
            CommitFailedError: the member was not in the group when the user's code last saw its state.
        """
        settings = self._machine.settings
        with self._guard:
            identity: tuple[str, int] | None = self._machine.member_id, self._machine.epoch
            if self._machine.ownership.membership_error(self._seen_losses) is not None:
                identity = self._seen_identity
            elif self._machine.epoch < 0:
                identity = None
        if identity is None:
            raise CommitFailedError(NOT_IN_GROUP)
        return GroupMetadata(settings.group_id, *identity, settings.instance_id)

    def metadata_for(self, partitions: Iterable[Partition]) -> GroupMetadata:
        """Returns the metadata with which a transaction commits offsets of the partitions.

        Raises:
            CommitFailedError: the member may not commit these offsets any more, or is not in the group.
        """
        keys = as_partitions(partitions)
        with self._guard:
            identity = self._machine.identity(keys, self._seen_losses)
        return GroupMetadata(self._machine.settings.group_id, *identity)

    def begin(
        self, offsets: Offsets, *, retry: bool, on_done: Callable[[Exception | None], Any] | None
    ) -> tuple[Commit, Event]:
        """Begins a commit: sends its request, or queues it after earlier commits.

        Args:
            offsets: partition -> the offset of the next record to read, or an `OffsetAndMetadata`.
            retry: True to repeat the request after retriable errors.
            on_done: called with the error, or None, when the commit is completed.

        Returns:
            The commit, and an event that is set when it is completed.

        Raises:
            TypeError, ValueError: a key is not a partition, or an offset is negative or not a number.
        """
        check_offsets(offsets)
        positions = {as_partition(key): to_commit(value) for key, value in offsets.items()}
        done = Event()

        def completed(commit: Commit) -> None:
            done.set()
            if on_done is not None:
                self._calls.callbacks.call(self._member, on_done, commit.error)

        at_ms = now_ms()
        with self._guard:
            commit = self._machine.commit(
                positions,
                at_ms,
                retry=retry,
                timeout_ms=round(self._calls.timeout_s * 1000),
                on_done=completed,
                seen_losses=self._seen_losses,
            )
            if commit.done and not done.is_set():
                completed(commit)
        if not self._send_at_once(commit, at_ms) and not commit.done:
            self._stepper.run()
        return commit, done

    def _send_at_once(self, commit: Commit, at_ms: int) -> bool:
        """Sends a commit now, unless it must wait for an earlier commit. Returns True if the commit was sent.

        The state machine returns the requests of this commit directly, without a step of the machine.
        """
        try:
            with self._guard:
                requests = self._machine.take_commit(commit, at_ms)
        except BaseException:
            with self._guard:
                self._machine.abandon()  # the exception may have interrupted the machine between two changes
            self._stepper.run()
            raise
        try:
            for outgoing in requests:
                self._send(outgoing)
        except BaseException:
            # The request may have been sent or not. The member stays in its group, so that it can leave it later.
            with self._guard:
                self._machine.give_up_commit(commit, KcoreError("an exception interrupted the sending of the commit"))
            self._stepper.wake()
            raise
        return bool(requests)
