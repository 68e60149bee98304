"""A node whose engine was interrupted by a callback: every waiting caller gets an error."""

from __future__ import annotations

import pytest

import kcore
from kcore.errors import EngineInterruptedError
from tests.kit import QUICK

HANG_S = 30.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("listens", [False, True], ids=["alone", "listens"])
def test_after_a_watcher_raised_members_and_calls_fail_and_the_node_closes(
    listens: bool, raised: type[BaseException]
) -> None:
    """A watcher raises an exception. The start of a member, a call and a poll then raise EngineInterruptedError at
    once.

    If the node listens, the watcher runs on the event loop's thread, otherwise on the member's thread.
    """

    def watch(_: object) -> None:
        raise raised

    with kcore.open(config=QUICK) as node:
        node.topics.create("t")
        if listens:
            node.listen()
        node.watch_group("g", watch)
        with pytest.raises(EngineInterruptedError):
            node.group("g").join(["t"]).start(timeout=HANG_S)
        with pytest.raises(EngineInterruptedError):
            node.topics["t"].append("a record")
        with pytest.raises(EngineInterruptedError), node.group("h").consume(["t"]) as consumer:
            consumer.poll(HANG_S)
