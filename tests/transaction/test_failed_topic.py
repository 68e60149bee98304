"""The topic of the transaction coordinator is created at its first use, and the commit of its creation may fail."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import Pending, RequestContext
from tests.kit import QUICK


def test_decisions_of_shards_whose_topic_was_not_created_fail() -> None:
    """If the commit that creates the coordinator's topic fails, the decided requests of its shards fail, too.

    Otherwise these shards could not be unloaded when the metadata log is read again.
    """
    settings = Config.of({**QUICK, "transaction.state.log.num.partitions": "1"})
    engine = Engine(MemoryLogEngine(), settings, ManualClock(), partial(random.Random(1).randbytes, 16))

    def send(request: Any, version: int) -> Any:
        response = engine.submit(RequestContext(version, "c"), request)
        engine.commit()
        engine.slices.finish()
        return response.response if isinstance(response, Pending) else response

    send(FindCoordinatorRequest(key_type=1, coordinator_keys=["a"]), 4)
    request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1_000)
    assert send(request, 4).error_code == ErrorCode.NONE
    decided = engine.submit(RequestContext(4, "c"), request)
    assert isinstance(decided, Pending)
    assert not decided.done
    engine.transactions.stop()
    assert decided.response.error_code == ErrorCode.NOT_COORDINATOR
    assert engine.transactions.shards is None
    engine.slices.finish()
    assert send(request, 4).error_code == ErrorCode.NOT_COORDINATOR
    engine.close()
