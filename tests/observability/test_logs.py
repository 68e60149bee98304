"""The log of a process: one line per event, with fields; texts of clients cannot forge lines or fields."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import pytest

import kcore
from kcore import process_logging
from kcore.clock import ManualClock
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.kit import QUICK, commit, heartbeat, make_topic, stable_alone
from tests.server.live import LiveServer


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_one_object_per_line(stream: io.StringIO) -> None:
    process_logging.configure(stream, "info", "json")
    log = logging.getLogger("kcore.test")
    log.debug("not this")
    log.info(
        "%s came\nand more",
        "somebody",
        extra=process_logging.fields(connection=7, client_id="a\nb", ratio=0.5, none=None),
    )
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("it failed", extra=process_logging.fields(group="g"))
    first, second = events(stream)
    when = first.pop("time")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(when))
    assert first == {
        "level": "info", "logger": "kcore.test", "message": "somebody came\nand more",
        "connection": 7, "client_id": "a\nb", "ratio": 0.5, "none": None,
    }  # fmt: skip
    assert second["level"] == "error"
    assert second["group"] == "g"
    assert "ValueError: bad" in str(second["exception"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_line_about_a_removed_member_names_it_and_the_cause(
    protocol: Literal["classic", "consumer"], stream: io.StringIO
) -> None:
    process_logging.configure(stream, "info", "json")
    with kcore.open(config=QUICK, clock=ManualClock()) as node:
        make_topic(node, "t")
        if protocol == "classic":
            member = _join_alone(node)[0]
        else:
            member = "A" * 22
            node.send(
                ConsumerGroupHeartbeatRequest(
                    group_id="workers",
                    member_id=member,
                    rebalance_timeout_ms=30_000,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                ),
                1,
            )
        node.advance(60_000)
    (line,) = [event for event in events(stream) if "removed member" in str(event["message"])]
    timeout_ms = 10_000 if protocol == "classic" else 45_000
    assert {name: line[name] for name in ("level", "message", "group", "member")} == {
        "level": "info",
        "message": f"group workers: removed member {member} of client 'kcore' at /127.0.0.1: it sent no heartbeat for "
        f"{timeout_ms} ms (session timeout); its partitions move to other members; if the client still runs, look for "
        "long processing, pauses or network errors in its log",
        "group": "workers",
        "member": member,
    }


def test_a_field_cannot_replace_another(stream: io.StringIO) -> None:
    """An extra field with the name of a standard field does not replace the time, level, logger or message of the
    event.
    """
    process_logging.configure(stream, "info", "json")
    logging.getLogger("kcore.test").info("true", extra=process_logging.fields(message="false", level="debug"))
    (event,) = events(stream)
    assert (event["message"], event["level"]) == ("true", "info")


def test_text_is_one_line_whatever_the_names_of_clients(stream: io.StringIO) -> None:
    process_logging.configure(stream, "info")
    logging.getLogger("kcore.test").info(
        "%s came", "x\n2026 ERROR forged\x1b[2J", extra=process_logging.fields(client_id='a b="c', group="g", empty="")
    )
    (line,) = stream.getvalue().splitlines()
    assert line.partition("kcore.test: ")[2] == (
        'x\\n2026 ERROR forged\\x1b[2J came  client_id="a b=\\"c" group=g empty=""'
    )


def test_long_names_are_truncated(stream: io.StringIO) -> None:
    for form in process_logging.FORMATS:
        process_logging.configure(stream, "info", form)
        logging.getLogger("kcore.test").info("%s", "x" * 100_000, extra=process_logging.fields(group="y" * 100_000))
    assert all(len(line) < 3 * process_logging.MAX_TEXT for line in stream.getvalue().splitlines())


def test_rebalances_are_logged_at_info_and_every_state_at_debug(stream: io.StringIO) -> None:
    process_logging.configure(stream, "debug", "json")
    with kcore.open(config=QUICK, clock=ManualClock()) as engine:
        _join_alone(engine)
        engine.advance(60_000)
    lines = [event for event in events(stream) if event.get("group") == "workers"]
    assert "removed member" in str(lines.pop(-3)["message"])
    assert all(str(event["message"]).startswith("group workers: state: ") for event in lines)
    assert [(event["level"], str(event["message"]).split(": ")[2], event["generation"]) for event in lines] == [
        ("debug", "Empty -> Empty", 0),
        ("info", "Empty -> PreparingRebalance", 0),
        ("debug", "PreparingRebalance -> CompletingRebalance", 1),
        ("info", "CompletingRebalance -> Stable", 1),
        ("info", "Stable -> PreparingRebalance", 1),
        ("info", "PreparingRebalance -> Empty", 2),
    ]
    assert [event["state"] for event in lines[-2:]] == ["PreparingRebalance", "Empty"]
    shards = [event for event in events(stream) if event["logger"] == "kcore.runtime.shard"]
    assert {event["level"] for event in shards} == {"debug"}
    assert any("loading -> active" in str(event["message"]) for event in shards)


def _join_alone(engine: kcore.EmbeddedNode) -> tuple[str, int]:
    from kcore.runtime import Pending
    from tests.kit import join, new_member, sync

    member = new_member(engine, "workers")
    pending = engine.start(join("workers", member))
    engine.advance(0)
    joined = pending.response if isinstance(pending, Pending) else pending
    assert engine.send(sync("workers", member, joined.generation_id, {member: b"secret-assignment"})).error_code == 0
    return member, joined.generation_id


def test_refusals_are_logged_at_info_with_the_client(stream: io.StringIO) -> None:
    process_logging.configure(stream, "info", "json")
    with kcore.open(clock=ManualClock()) as engine:
        response = engine.send(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), client_id="c")
        assert response.error_code == 42
        engine.engine.groups.unload(engine.engine.groups.partitions - 1)
        refused = [
            engine.send(heartbeat(f"g{number}", "m", 1), client_id="c").error_code for number in range(500)
        ].count(16)
    assert refused > 0
    lines = [event for event in events(stream) if str(event["message"]).startswith("Heartbeat of client ")]
    assert len(lines) == refused
    assert {(event["level"], event["api"], event["error"], event["client_id"]) for event in lines} == {
        ("info", "Heartbeat", "NOT_COORDINATOR", "c")
    }


def test_payloads_are_never_logged(stream: io.StringIO) -> None:
    """Assignments, metadata and records are not logged at any level, even when a request is refused."""
    process_logging.configure(stream, "debug", "json")
    with LiveServer() as live, live.connect() as client:
        make_topic(client, "t")
        stable_alone(client, "g", metadata=b"secret-metadata")
        client.send(commit("g2", {("t", 0): 1}, metadata="secret-text"))
        with live.raw() as raw:
            raw.send(b"\x00\x00\x00\x0d\x00\x0bsecret-frame")
            assert raw.closed
    text = stream.getvalue()
    assert "closed" in text
    assert "secret" not in text
    (refused,) = [event for event in events(stream) if "closed" in str(event["message"])]
    assert isinstance(refused["connection"], int)
