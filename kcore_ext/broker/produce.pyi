from collections.abc import Callable
from typing import Any, final

from kcore.broker.apis.produce import ProduceApi
from kcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kcore.runtime import Pending, RequestContext
from kcore.runtime.commit import CommitPipeline
from kcore_ext.runtime.clock import Now

@final
class AppendLimits:
    """The limits of a topic within which a batch is appended unchanged.

    Args:
        max_bytes: the maximum size of a batch in bytes, header included.
        before_max_ms: the maximum time in ms by which a create time may be before the wall clock.
        after_max_ms: the maximum time in ms by which a create time may be after the wall clock.
        codec: the codec of stored batches; -1: the codec that the producer has chosen.
        needs_keys: True if every record must have a key.
        create_time: True if the log stores the producer's timestamps; False: the log sets append times, which changes
            every batch.
    """

    def __init__(
        self, max_bytes: int, before_max_ms: int, after_max_ms: int, codec: int, needs_keys: bool, create_time: bool
    ) -> None: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def before_max_ms(self) -> int: ...
    @property
    def after_max_ms(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def needs_keys(self) -> bool: ...
    @property
    def create_time(self) -> bool: ...

class ProduceFastPath:
    """The fast path of Produce for common requests.

    In a common request every batch has magic 2, is valid, is within its topic's limits and is appended unchanged. The
    batch of an idempotent producer begins with the sequence number that follows the producer's last batch. The
    transaction of a transactional batch is already open in the partition.

    `ProduceApi.handle` is the generic path. A test checks that both paths have the same results.

    Args:
        api: makes the responses after an append that failed.
        names: the node's topics by name. Each has a name, a flag for internal topics, and its partitions by number.
        ids: the node's topics by id.
        pipeline: commits appends; responses wait for it.
        now: the clock, which is read once per round.
        allowed: returns True if the client of a context may write to a topic; None allows all requests.
        forbidden: the topic that no client may write to.
        decompress: decompresses records, as in `kcore_ext.batch.survey`.
    """

    def __init__(
        self,
        api: ProduceApi,
        *,
        names: dict[str, Any],
        ids: dict[bytes, Any],
        pipeline: CommitPipeline,
        now: Now,
        allowed: Callable[[RequestContext, str], bool] | None,
        forbidden: str,
        decompress: Callable[[int, Any, int], bytes],
    ) -> None: ...

    declines: bool
    """True while a producer has a byte-rate quota. The fast path then declines every request, because only
    `ProduceApi.handle` measures rates.
    """

    def serve(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Pending | None:
        """Appends the batches of a common request.

        Returns None, without a change, if the generic path must serve the request.
        """
