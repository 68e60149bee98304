"""The interface to the durable state of share partitions (KIP-932), for group coordinators and partition leaders.

Its five operations are the wire messages of Kafka's share coordinator. `kcore.share.local.LocalPersister` runs them in
the share coordinator of this node; `kcore.share.shared.SharedPersister` sends each request to the coordinator of its
key (`share_key`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kcore.protocol.uuids import to_text
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from kcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
    from kcore.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from kcore.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from kcore_ext.share.state_update import StateWriter
    from kcore_ext.share.states import ShareState


def share_key(group_id: str, topic_id: bytes, partition: int) -> str:
    """Returns the key of a share partition. It determines the partition of `__share_group_state`."""
    return f"{group_id}:{to_text(topic_id)}:{partition}"


class Persister(Protocol):
    """The durable state of share partitions.

    Each operation returns its response, or a `Pending` for it. The thread that runs the engine's decisions completes
    the `Pending` when the operation is durable or has failed. `when_complete` accepts a response as well as a
    `Pending`. A response has one result for each requested partition, in the order of the request. No operation raises:
    errors are codes of partitions. The persister itself retries after retriable codes (COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR).

    A caller must not call an operation while a shard processes a request. It can call an operation after `Shard.run`,
    or in the callback of a `Pending`.
    """

    def initialize(
        self, request: InitializeShareGroupStateRequest, may_repeat: Callable[[], bool] | None = None
    ) -> InitializeShareGroupStateResponse | Pending:
        """Sets start offset and state epoch of share partitions, and discards their delivery state.

        Args:
            request: the share partitions.
            may_repeat: returns False once a failed request must not be repeated, because another request may have
                initialized the share partitions meanwhile; None: the request may always be repeated.
        """
        ...

    def read(self, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse | Pending:
        """Returns the delivery state to a partition leader, and fences leaders with a lower leader epoch."""
        ...

    def stored(self, group_id: str, topic_id: bytes, partition: int) -> ShareState | None:
        """Returns a share partition's state; None if it has no state, or if another node may store its state."""
        ...

    def write(
        self, request: WriteShareGroupStateRequest, may_repeat: Callable[[], bool] | None = None
    ) -> WriteShareGroupStateResponse | Pending:
        """Stores changes that a partition leader has made to the delivery state.

        Args:
            request: the changes.
            may_repeat: returns False once a failed request must not be repeated, because the leader may have read the
                state without these changes meanwhile; None: the request may always be repeated.
        """
        ...

    def writer(self, group_id: str, topic_id: bytes, partition: int) -> StateWriter | None:
        """Returns a writer that writes the updates of one share partition without creating request messages.

        The result is None if the share coordinator is on another node. If the writer declines a write, or if the write
        fails, the caller must repeat it with `write`.
        """
        ...

    def delete(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse | Pending:
        """Deletes share partitions. A partition without state is not an error."""
        ...

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> ReadShareGroupStateSummaryResponse | Pending:
        """Returns start offsets and counts of completed deliveries.

        A partition without state has start offset -1 and is not an error.
        """
        ...


def when_complete(result: object, callback: Callable[[object], None]) -> None:
    """Calls `callback` with the response of a persister's operation: at once, or when its `Pending` is complete.

    Args:
        result: the value that the operation returned.
        callback: receives the response. It runs while no shard processes a request, so it can run further requests.
    """
    if isinstance(result, Pending):
        result.on_complete(callback)
    else:
        callback(result)
