from collections.abc import Callable
from typing import Any, ClassVar, final

from kcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kcore.protocol.schema import Message
from kcore.runtime import Pending, RequestContext
from kcore.runtime.commit import CommitPipeline
from kcore_ext.runtime.clock import Now

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

class ProduceCore:
    """Serves requests that have nothing unusual about them: every batch is one of magic 2, sound, within its topic's
    limits, in no need of a change, of no producer or the next one of its producer, and of no transaction or of the one
    that is open there.

    `ProduceApi` is the rest of it: `handle_generic` serves any request, and alone says what all this means. A test
    holds the two together.

    Args:
        names: the node's topics by name: name, internal, partitions by number.
        ids: the same by id.
        pipeline: answers wait for its commit.
        now: the time of the round.
        allowed: whether whoever stands behind a context may write to the topic of a name; None: everybody may.
        forbidden: the one topic that not even an administrator writes to.
        decompress: see `kcore_ext.batch.survey`.
    """

    request_type: ClassVar[type[Message]]
    response_type: ClassVar[type[Message]]

    def __init__(
        self,
        names: dict[str, Any],
        ids: dict[bytes, Any],
        pipeline: CommitPipeline,
        now: Now,
        *,
        allowed: Callable[[RequestContext, str], bool] | None,
        forbidden: str,
        decompress: Callable[[int, Any, int], bytes],
    ) -> None: ...
    def handle(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Pending | None:
        """Appends what may be appended; answers once it is durable.

        Raises:
            CloseConnectionError: something failed and the client (acks=0) waits for no answer.
        """

    def handle_fast(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Pending | None:
        """Appends the whole request; None if anything about it is unusual: then nothing was changed."""
