from collections.abc import Callable
from typing import Any, final

from kcore.protocol.messages.produce import ProduceRequest
from kcore.runtime import Pending, RequestContext
from kcore.runtime.commit import CommitPipeline
from kcore_ext.clock import Now

@final
class AppendLimits:
    """What a topic asks of a batch that is to be appended as it came.

    Args:
        max_bytes: how large it may be, header included.
        before_max_ms: how far behind the wall clock a create time may be.
        after_max_ms: how far ahead of it.
        codec: the codec in which batches are kept; -1: in the producer's.
        needs_keys: whether every record needs a key.
        create_time: whether timestamps are the producer's; else no batch is appended as it came.
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

@final
class ExpectedProduce:
    """Serves requests that have nothing unusual about them: every batch is one of magic 2, sound, within its topic's
    limits, in no need of a change, of no producer or the next one of its producer, and of no transaction or of the one
    that is open there.

    What that means is said by `ProduceApi.plain` alone: a test holds the two together.

    Args:
        api: stands in the pending answers, and answers for a partition whose log did not take its batch (`not_taken`,
            `answer`).
        names: the node's topics by name: name, internal, partitions by number.
        ids: the same by id.
        pipeline: answers wait for its commit.
        now: the time of the round.
        allowed: whether whoever stands behind a context may write to the topic of a name; None: everybody may.
        forbidden: the one topic that not even an administrator writes to.
        decompress: see `kcore_ext.batch.survey`.
    """

    def __init__(
        self,
        api: Any,
        names: dict[str, Any],
        ids: dict[bytes, Any],
        pipeline: CommitPipeline,
        now: Now,
        *,
        allowed: Callable[[RequestContext, str], bool] | None,
        forbidden: str,
        decompress: Callable[[int, Any, int], bytes],
    ) -> None: ...
    def handle(self, context: RequestContext, request: ProduceRequest) -> Pending | None:
        """Appends the whole request; None if anything about it is unusual: then nothing was changed."""
