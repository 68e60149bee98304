"""Names that clients choose cannot control the terminal of an operator, in the output of any command."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import kcore
from kcore import process_logging
from kcore.cli import main
from kcore.printable import clean
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore_ext.batch import BatchBuilder
from tests.cli.conftest import Ran
from tests.kit import QUICK, batch, commit, join, make_topic, new_member, produce, sync
from tests.server.live import LiveServer

NASTY = "a\x1b]0;owned\x07\x1b[2J\r\nkcore: all is well\x85\x9b31m\u202ekcab\u2066\u200b\x7f"
SAFE = clean(NASTY)
ROOT = Path(__file__).parents[2]

Run = Callable[..., Ran]


def is_harmless(text: str) -> bool:
    """Returns True if the text has only lines of printable characters."""
    return all(letter.isprintable() or letter == "\n" for letter in text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "data"
    settings = {**QUICK, "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with kcore.open(path, config=settings) as engine:
        make_topic(engine, "t")
        engine.send(commit(NASTY, {("t", 0): 1}, metadata=NASTY), 9)
        group, names = f"{NASTY}2", {"protocol_type": NASTY, "protocol": NASTY}
        member = new_member(engine, group, **names)
        generation = engine.send(join(group, member, **names, metadata=NASTY.encode())).generation_id
        assert engine.send(sync(group, member, generation, {member: b"all"}, **names)).error_code == 0
        engine.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[NASTY]))  # creates the internal topic
        assert engine.send(InitProducerIdRequest(transactional_id=NASTY, transaction_timeout_ms=60_000)).error_code == 0
        one = ScramCredentialUpsertion(
            name=NASTY, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        assert engine.send(AlterUserScramCredentialsRequest(upsertions=[one])).results[0].error_code == 0
        engine.send(produce("t", batch([NASTY.encode()])), 9)
        odd = BatchBuilder(1_000, base_timestamp_ms=2**60)
        assert odd.append(2**60, NASTY.encode(), NASTY.encode())
        response = engine.send(produce("t", bytes(odd.build())), 9).responses[0].partition_responses[0]
        assert response.error_code in (0, 32), response
    return path


@pytest.mark.parametrize(
    "verb",
    [
        "groups list", "groups describe", "offsets list", "transactions list", "transactions describe", "users list",
        "log dump", "log dump --topic __consumer_offsets", "topics list", "log verify",
    ],
)  # fmt: skip
def test_text_output_is_harmless(verb: str, folder: Path, run: Run) -> None:
    words = verb.split()
    arguments = [*words[:2], folder, *words[2:]]
    if verb == "transactions describe":
        arguments += ["--id", NASTY]
    ran = run(*arguments)
    assert ran.status == 0, ran
    assert is_harmless(ran.out), ran.out
    assert is_harmless(ran.err), ran.err
    if verb not in ("topics list", "log verify"):
        assert SAFE[:20] in ran.out


@pytest.mark.parametrize(
    "verb", [["groups", "describe", "--group"], ["topics", "describe", "--topic"], ["topics", "create", "--topic"],
             ["topics", "delete", "--topic"], ["transactions", "describe", "--id"]],
)  # fmt: skip
def test_errors_are_harmless(verb: list[str], folder: Path, run: Run) -> None:
    ran = run(*verb[:2], folder, *verb[2:], f"{NASTY}-absent")
    assert ran.status == 1, ran
    assert is_harmless(ran.out + ran.err), ran
    assert "owned" in ran.out + ran.err


class Screen(io.StringIO):
    """An output stream that behaves as a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Screen, clean(NASTY + "\t", keep="\n\t")), (io.StringIO, NASTY + "\t")])
def test_records_are_escaped_on_a_terminal_only(stream: type[io.StringIO], shown: str) -> None:
    """On a terminal, line ends and tabs stay, because they are harmless and many texts have them. A pipe gets the
    unchanged records.
    """
    with LiveServer() as live:
        with live.connect() as client:
            make_topic(client, "t")
            client.send(produce("t", batch([f"{NASTY}\t".encode()])), 9)
        out = stream(newline="")
        with redirect_stdout(out):
            assert main(["consume", "--topic", "t", "--bootstrap", f"127.0.0.1:{live.port}"]) == 0
    assert out.getvalue() == f"{shown}\n"


def test_log_lines_are_harmless() -> None:
    """Checks the message, its fields, and the text of an exception in a traceback."""
    formatter = process_logging.TextFormatter()
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        about = (type(error), error, error.__traceback__)
    record = logging.LogRecord("kcore.test", logging.WARNING, __file__, 1, "%s closes", (NASTY,), about)
    record.__dict__.update(process_logging.fields(group=NASTY))
    text = formatter.format(record)
    assert is_harmless(text)
    first, *trace = text.split("\n")
    assert first.count("owned") == 2
    assert all(line.startswith("    ") for line in trace)
    assert any("ValueError" in line for line in trace)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 😀 \\x1b", "plain ü 😀 \\x1b"), ("\x1b[0m", r"\x1b[0m"), ("a\nb\tc", r"a\x0ab\x09c"),
        ("\x9b", r"\x9b"), ("\u202e", r"\u202e"), ("\U000e0001", r"\U000e0001"), ("\ud800", r"\ud800"),
    ],
)  # fmt: skip
def test_control_characters_of_a_text_are_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(shown) == shown


def test_a_name_that_the_terminal_cannot_encode_does_not_stop_the_output(tmp_path: Path) -> None:
    """On an ASCII terminal, the output has escapes in place of the characters that are not ASCII."""
    folder = tmp_path / "data"
    with kcore.open(folder, config=QUICK) as engine:
        make_topic(engine, "t")
        for group in ("\u0130\u00e4", "z"):
            engine.send(commit(group, {("t", 0): 1}), 9)
    done = subprocess.run(
        [sys.executable, "-m", "kcore", "log", "dump", str(folder)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u0130\\xe4" in done.stdout
