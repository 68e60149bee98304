"""The persister of a node that coordinates all share partitions itself (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from kcore.printable import counted
from kcore.process_logging import limited_logger, log_failure, next_step
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.records.share_update import ShareUpdateKey
from kcore.protocol.uuids import to_text
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import Pending
from kcore.share import apis
from kcore.share.batches import combine
from kcore.share.persister import share_key
from kcore.share.shard import TOPIC_NAME
from kcore.share.state import SharePartitionKey
from kcore_ext.share.state_update import StateWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.clock import Now
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
    from kcore.protocol.schema import Request
    from kcore.runtime.topics import TopicImage
    from kcore.share.apis.base import ShareStateApi
    from kcore.share.coordinator import ShareCoordinator
    from kcore_ext.runtime.timer_wheel import TimerWheel
    from kcore_ext.share.states import ShareState

logger = limited_logger(__name__)

R = TypeVar("R")

RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Error codes after which the node repeats an operation: a shard is loading, or loads again after a failed commit."""

FIRST_RETRY_MS: Final = 10
"""The time before the first retry. It doubles with each further retry. All retries together take about ten seconds."""

MAX_RETRIES: Final = 10

_CONTEXT: Final = RequestContext(api_version=0)
"""The context of requests that the node makes itself. The share coordinator's APIs do not depend on its API version."""


class _WriterApi:
    """The part of an API that `StateWriter` uses. It returns an error code instead of a response to a failed write."""

    storage_error = ErrorCode.NOT_COORDINATOR

    def error(self, context: object, request: object, code: ErrorCode, message: str | None = None) -> ErrorCode:
        """Returns the code of a failed write."""
        return code


_WRITER_API: Final = _WriterApi()


class LocalPersister:
    """The `Persister` that runs the operations in the share coordinator of this node.

    The first operation creates `__share_group_state`. An operation is repeated if its shard is loading or its commit
    fails.

    Args:
        coordinator: the node's share coordinator.
        topics: the cluster's topics.
        make_topic: starts creating an internal topic.
        wheel: arms the timers of retries.
        now: the clock, which is read once per round.
    """

    __slots__ = ("_apis", "_coordinator", "_make_topic", "_now", "_topics", "_wheel")

    def __init__(
        self,
        coordinator: ShareCoordinator,
        topics: TopicImage,
        make_topic: Callable[[str], object],
        wheel: TimerWheel,
        now: Now,
    ) -> None:
        self._coordinator = coordinator
        self._make_topic = make_topic
        self._wheel = wheel
        self._now = now
        self._topics = topics
        self._apis: dict[str, Any] = {}

    def initialize(
        self, request: InitializeShareGroupStateRequest, may_repeat: Callable[[], bool] | None = None
    ) -> InitializeShareGroupStateResponse | Pending:
        """Implements `Persister.initialize`."""
        return self._run("InitializeShareGroupStateApi", request, may_repeat)

    def read(self, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse | Pending:
        """Implements `Persister.read`."""
        return self._run("ReadShareGroupStateApi", request)

    def stored(self, group_id: str, topic_id: bytes, partition: int) -> ShareState | None:
        """Implements `Persister.stored`."""
        shards = self._coordinator.shards
        if shards is None:
            return None
        shard = shards.find(share_key(group_id, topic_id, partition))
        return None if shard is None else shard.machine.states.get(SharePartitionKey(group_id, topic_id, partition))

    def write(
        self, request: WriteShareGroupStateRequest, may_repeat: Callable[[], bool] | None = None
    ) -> WriteShareGroupStateResponse | Pending:
        """Implements `Persister.write`."""
        return self._run("WriteShareGroupStateApi", request, may_repeat)

    def writer(self, group_id: str, topic_id: bytes, partition: int) -> StateWriter:
        """Implements `Persister.writer`."""
        record_key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition).encode_key()
        assert record_key is not None
        return StateWriter(
            _WRITER_API,
            self._coordinator,
            self._topics.by_id,
            combine,
            SharePartitionKey(group_id, topic_id, partition),
            share_key(group_id, topic_id, partition),
            record_key,
        )

    def delete(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse | Pending:
        """Implements `Persister.delete`."""
        return self._run("DeleteShareGroupStateApi", request)

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> ReadShareGroupStateSummaryResponse | Pending:
        """Implements `Persister.read_summary`."""
        return self._run("ReadShareGroupStateSummaryApi", request)

    def _run(self, name: str, request: Request[R], may_repeat: Callable[[], bool] | None = None) -> R | Pending:
        api = self._apis.get(name)
        if api is None:
            # The API is made at its first use, because the start of a node imports no API.
            api = self._apis[name] = getattr(apis, name)(self._coordinator, self._topics)
        operation = _Operation(self, api, request, may_repeat)
        operation.attempt()
        if not operation.done:
            return operation
        response: R = operation.response
        return response

    def call(self, api: ShareStateApi[Any, Any], request: Any) -> Any:
        """Runs a request once. Returns the response, or a `Pending` for it."""
        if self._coordinator.shards is None:
            self._make_topic(TOPIC_NAME)
        return api.run(_CONTEXT, request)

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Calls `callback` after `delay_ms`."""
        self._wheel.add(self._now.now_ms + delay_ms, callback)


class _Operation(Pending):
    """A request with its retries. A retry has only the partitions that failed with a retriable code.

    Args:
        persister: runs the request and its retries.
        api: the API of the request.
        request: the request with all of its partitions.
        may_repeat: returns False once the request must not be repeated; None: the request may always be repeated.
    """

    __slots__ = ("_failed", "_may_repeat", "_persister", "_results", "_retries")

    def __init__(
        self,
        persister: LocalPersister,
        api: ShareStateApi[Any, Any],
        request: Any,
        may_repeat: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(api, _CONTEXT, request)
        self._persister = persister
        self._may_repeat = may_repeat
        self._retries = 0
        self._results: list[Any] | None = None
        self._failed: list[int] = []

    def attempt(self) -> None:
        """Runs the request, or a retry of its failed partitions."""
        request = self.request
        if self._results is not None:
            if self._may_repeat is not None and not self._may_repeat():
                self.complete(self.api.join(request, self._results))
                return
            failed = set(self._failed)
            request = self.api.reduced(request, failed)
        result = self._persister.call(self.api, request)
        if isinstance(result, Pending):
            result.on_complete(self._arrived)
        else:
            self._arrived(result)

    def _name(self, position: int) -> str:
        """Returns the topic id and the number of a requested partition, for log lines."""
        names = [(topic.topic_id, each.partition) for topic in self.request.topics for each in topic.partitions]
        topic_id, partition = names[position]
        return f"{to_text(topic_id)}-{partition}"

    def _arrived(self, response: Any) -> None:
        """Completes the operation, or schedules a retry."""
        results = [result for topic in response.results for result in topic.partitions]
        if self._results is None:
            if not any(result.error_code in RETRIED for result in results):
                self.complete(response)
                return
            self._results = results
            self._failed = list(range(len(results)))
        for at, result in zip(self._failed, results, strict=True):
            self._results[at] = result
        self._failed = [at for at in self._failed if self._results[at].error_code in RETRIED]
        if not self._failed or self._retries >= MAX_RETRIES:
            self.complete(self.api.join(self.request, self._results))
            if self._failed:
                logger.warning(
                    "share coordinator: %s for %s of group %r (first: %s) failed with %s, even after %s; "
                    "the sender of the request gets this error; look for errors about __share_group_state in "
                    "the log messages of the server",
                    self.api.name,
                    counted(len(self._failed), "partitions"),
                    self.request.group_id,
                    self._name(self._failed[0]),
                    ErrorCode(self._results[self._failed[0]].error_code).name,
                    counted(self._retries, "retries"),
                )
            return
        self._persister.later(FIRST_RETRY_MS << self._retries, self._repeat)
        self._retries += 1

    def _repeat(self) -> None:
        """Runs a retry. If the retry raises an exception, the operation fails with UNKNOWN_SERVER_ERROR."""
        try:
            self.attempt()
        except Exception as error:
            if not self.done:
                self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)  # first: there may be no memory for the line
            log_failure(
                logger,
                error,
                "share coordinator: a retry of %s for group %r failed; the sender of the request gets "
                "UNKNOWN_SERVER_ERROR%s",
                self.api.name,
                self.request.group_id,
                next_step(error),
            )
