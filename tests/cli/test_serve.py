"""`kcore serve` and the command as a whole: settings, listeners, failed starts, clean shutdowns."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kcore
from kcore.cli import VERBS
from kcore.client import Connection
from kcore.errors import KcoreError
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.testing import ServerProcess
from tests.cli.conftest import Ran

Run = Callable[..., Ran]
Write = Callable[[str], Path]

RATIO = "log.cleaner.min.cleanable.ratio"
FEW = {"offsets.topic.num.partitions": "1"}


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == Ran(0, f"kcore {kcore.__version__}\n", "")


def test_without_a_verb_help_is_shown(run: Run) -> None:
    ran = run()
    assert ran.status == 2
    assert all(verb in ran.out for verb in VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_verb_has_help(verb: str, run: Run) -> None:
    ran = run(verb, "--help")
    assert ran.status == 0
    assert ran.out.startswith(f"usage: kcore {verb}")


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("serve", "--nonsense"), ("groups",), ("log", "dump", "--from", "x")]
)
def test_invalid_usage_prints_the_usage(arguments: tuple[str, ...], run: Run) -> None:
    ran = run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("usage: kcore")


# ---- settings


def test_the_effective_configuration_shows_the_source_of_each_value(
    run: Run, properties: Write, tmp_path: Path
) -> None:
    file = properties(
        "# a comment\n! another\n\ngroup.max.size = 7\nlog.retention.hours:5\n"
        "listeners=PLAINTEXT://127.0.0.1:0,\\\n    INSIDE://127.0.0.1:0\ngroup.max.size=8\n"
    )
    ran = run(
        "serve",
        "--config",
        file,
        "-c",
        "node.id=3",
        "-c",
        "log.retention.hours=6",
        "--data",
        tmp_path,
        "--print-config",
    )
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert f"group.max.size=8  # {file}:8" in lines
    assert f"listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0  # {file}:6" in lines
    assert "node.id=3  # -c" in lines
    assert "log.retention.hours=6  # -c" in lines
    assert f"kcore.data.dir={tmp_path}  # command line" in lines
    assert "group.initial.rebalance.delay.ms=3000  # default" in lines
    assert len(lines) == len(kcore.Config.SETTINGS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\n\ngroup.max.size=0\n", "{file}:1: unknown setting 'a'"),
        ("\ngroup.max.size=0\n", "{file}:2: group.max.size='0' is out of range; valid: a whole number in 1.."),
        ("group.max.size=many\n", "{file}:1: group.max.size='many' is not a whole number; valid: a whole number in 1"),
        ("delete.topic.enable=y\n", "{file}:1: delete.topic.enable='y' is neither true nor false; valid: true or"),
        ("compression.type=rar\n", "{file}:1: compression.type='rar' is not supported; valid: one of 'uncompressed'"),
        (
            "log.cleanup.policy=compact,drop\n",
            "{file}:1: log.cleanup.policy='compact,drop' contains 'drop', which is not supported; valid: a list of",
        ),
        (f"{RATIO}=2\n", "{file}:1: " + RATIO + "='2' is out of range; valid: a number from 0 to 1"),
        ("group.max.sise=1\n", "{file}:1: unknown setting 'group.max.sise'; did you mean 'group.max.size'?"),
        ("zookeeper.connect=localhost\n", "{file}:1: unknown setting 'zookeeper.connect'"),
        ("\n# x\nno setting\n", "{file}:3: the line is not a setting; valid: name=value"),
        ("listeners=nonsense\n", "{file}:1: 'nonsense' is not a listener; valid: NAME://HOST:PORT or HOST:PORT"),
        ("listeners=127.0.0.1:99999\n", "{file}:1: '127.0.0.1:99999' is not a listener"),
        ("listeners=A://a:0,A://b:0\n", "{file}:1: listeners=A://a:0,A://b:0: each listener needs a name of its own"),
        ("listeners=A://a:9,B://a:9\n", "{file}:1: listeners=A://a:9,B://a:9: two listeners cannot share an address"),
        ("listeners=\n", "{file}:1: listeners is empty; valid: NAME://HOST:PORT, at least one"),
        ("advertised.listeners=B://127.0.0.1:9\n", "{file}:1: advertised.listeners names B, which is not in listeners"),
    ],
)  # fmt: skip
def test_an_invalid_setting_is_refused_with_its_source_and_the_valid_values(
    text: str, expected: str, run: Run, properties: Write
) -> None:
    file = properties(text)
    ran = run("serve", "--config", file)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("kcore: " + expected.format(file=file)), ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-c", "group.max.size=0"], "kcore: -c: group.max.size='0' is out of range"),
        (["-c", "nonsense"], "kcore: -c 'nonsense' is not a setting; valid: -c name=value"),
        (["--listen", "here"], "kcore: command line: 'PLAINTEXT://here' is not a listener"),
        (["--config", "/nowhere/at.all"], "kcore: /nowhere/at.all: cannot be read: No such file or directory\n"),
    ],
)
def test_bad_arguments_are_refused_with_their_position(arguments: list[str], expected: str, run: Run) -> None:
    ran = run("serve", *arguments)
    assert ran.status == 1
    assert ran.err.startswith(expected), ran.err


# ---- serving


def started(*arguments: str) -> subprocess.Popen[str]:
    """Starts a server that has the default action of SIGHUP, even if the tests run under `nohup`, which ignores this
    signal.
    """
    command = [sys.executable, "-m", "kcore", "serve", *arguments]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_a_data_folder_a_warning_is_logged(run: Run, tmp_path: Path) -> None:
    """A server without a data folder logs one warning at its start. With `kcore.durability=memory` it logs no warning.

    `--print-config` also shows that the data folder is missing.
    """

    def log_of(*arguments: str) -> str:
        command = [sys.executable, "-m", "kcore", "serve", "--listen", "127.0.0.1:0", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert any("recovered" in line for line in process.stdout)
            process.terminate()
            assert process.wait(30) == 0
            return process.stderr.read()

    assert re.fullmatch(r".* WARNING .*no data folder \(--data DIR\); all data is in memory.*\n", log_of())
    assert log_of("-c", "kcore.durability=memory") == ""
    assert log_of("--data", str(tmp_path / "data")) == ""
    assert "kcore.durability=memory  # there is no kcore.data.dir\n" in run("serve", "--print-config").out
    assert "kcore.durability=fsync  # default\n" in run("serve", "--data", "d", "--print-config").out
    listens = run("serve", "--http", "127.0.0.1:9464", "--print-config").out
    assert "kcore.http.listen=127.0.0.1:9464  # command line\n" in listens
    assert "kcore.durability=os  # -c\n" in run("serve", "-c", "kcore.durability=os", "--print-config").out


def test_each_listener_advertises_its_own_address() -> None:
    """Metadata has the address of the listener that the client uses, or the advertised address of that listener."""
    process = started(
        *("-c", "offsets.topic.num.partitions=1", "-c", "kcore.durability=memory"),
        *("--listen", "127.0.0.1:0", "--listen", "INSIDE://127.0.0.1:0", "--listen", "127.0.0.1:0"),
        *("-c", "advertised.listeners=INSIDE://kafka.example:1234"),
        *("-c", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,PLAINTEXT3:PLAINTEXT"),
    )
    assert process.stdout is not None
    addresses = {}
    for _ in range(3):
        line = re.fullmatch(r"kcore: (\w+) listening on 127\.0\.0\.1:(\d+)\n", process.stdout.readline())
        assert line is not None
        with Connection("127.0.0.1", int(line[2])) as connection:
            (broker,) = connection.send(MetadataRequest(topics=[])).brokers
            addresses[line[1]] = (broker.host, broker.port, broker.port == int(line[2]))
    assert process.stdout.readline().startswith("kcore: recovered ")
    process.terminate()
    assert process.communicate(timeout=30) == ("", "")
    assert [(name, host, own) for name, (host, _, own) in addresses.items()] == [
        ("PLAINTEXT", "127.0.0.1", True),
        ("INSIDE", "kafka.example", False),
        ("PLAINTEXT3", "127.0.0.1", True),
    ]
    assert addresses["INSIDE"][1] == 1234


def test_port_0_selects_a_free_port_and_signals_end_the_server_cleanly(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = started(
            "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "-c", "offsets.topic.num.partitions=1"
        )
        assert process.stdout is not None
        listening, recovered = process.stdout.readline(), process.stdout.readline()
        assert re.fullmatch(
            r"kcore: recovered \d+ topics?, 0 groups and 0 records of 1 coordinator partition in \d+ ms from "
            + re.escape(f"{tmp_path}/data\n"),
            recovered,
        )
        port = re.fullmatch(r"kcore: PLAINTEXT listening on 127\.0\.0\.1:(\d+)\n", listening)
        assert port is not None
        with Connection("127.0.0.1", int(port[1])) as connection:
            assert connection.send(MetadataRequest(topics=[])).brokers[0].port == int(port[1])
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_the_log_names_the_signal_that_ends_the_server() -> None:
    process = started("-c", "kcore.durability=memory", "--listen", "127.0.0.1:0", "--log-level", "info")
    assert process.stdout is not None
    assert "listening on" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert [line.partition(" INFO ")[2] for line in err.splitlines()[-2:]] == [
        "kcore.serve: server: received SIGTERM, and ends in an orderly way",
        "kcore.serve: server: has ended in an orderly way",
    ]


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = started("--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == ""
    assert err == (
        f"kcore: cannot listen: listener PLAINTEXT, 127.0.0.1:{port}: Address already in use; stop the process that "
        "uses this port, or choose another port\n"
    )
    with kcore.open(tmp_path / "data", create=False) as engine:
        assert engine.engine.recovery.topics == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--listen", "A.invalid:0"],
            "cannot listen: listener PLAINTEXT, A.invalid:0: ",
        ),
        (
            ["--listen", "192.0.2.1:9092"],
            "cannot listen: listener PLAINTEXT, 192.0.2.1:9092: Cannot assign requested address; listen on an address ",
        ),
        (
            ["--listen", "127.0.0.1:0", "--http", "192.0.2.1:9464"],
            "cannot listen: kcore.http.listen, 192.0.2.1:9464: Cannot assign requested address; listen on an address ",
        ),
        (
            ["--listen", "127.0.0.1:0", "--http", "127.0.0.1"],
            "kcore.http.listen: '127.0.0.1' is not an address; valid: HOST:PORT, port 0 to 65535",
        ),
    ],
    ids=["unknown host", "other machine", "other machine, HTTP", "no port"],
)
def test_the_error_of_an_address_names_the_listener_and_the_address(arguments: list[str], expected: str) -> None:
    process = started("-c", "kcore.durability=memory", *arguments)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith(f"kcore: {expected}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("limit", [16, 63])
def test_too_few_descriptors_are_reported_in_one_line(tmp_path: Path, limit: int) -> None:
    arguments = [sys.executable, "-m", "kcore", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    command = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"kcore: this process may have only {limit} open files and sockets; kcore serve needs at least 64, "
        "and one for each connection: raise the limit with `ulimit -n`\n",
    )
    assert not (tmp_path / "data").exists()


def test_a_folder_in_use_by_another_server_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", FEW) as server:
        second = ServerProcess(tmp_path / "data", FEW, stderr=tmp_path / "second.log")
        with pytest.raises(KcoreError, match="ended with status 1"):
            second.start()
        assert (tmp_path / "second.log").read_text() == (
            f"kcore: {tmp_path / 'data'}: kcore.lock: in use by process {server.pid}; stop this process first, or, if "
            "it is a server, pass --bootstrap HOST:PORT (to a Spark job, --kafka HOST:PORT), or use a copy made by "
            "`kcore log copy`\n"
        )


@pytest.mark.parametrize("to_file", [False, True])
def test_the_error_of_a_failed_start_states_the_cause(tmp_path: Path, to_file: bool) -> None:
    """The error contains the log output of this start, whether or not the log also goes to a file."""
    log = tmp_path / "log"
    log.write_text("kcore: from before\n")
    server = ServerProcess(settings={"bad": "x"}, stderr=log if to_file else None)
    with pytest.raises(
        KcoreError, match=r"^kcore serve ended with status 1: kcore: -c: unknown setting 'bad'"
    ) as raised:
        server.start()
    if to_file:
        reason = str(raised.value).partition("status 1: ")[2]
        assert log.read_text() == f"kcore: from before\n{reason}\n"


def test_a_server_can_be_started_again_after_a_failed_start(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", {**FEW, "cluster.id": "first"})
    with server:
        assert server.alive
        assert server.kill() > 0
        assert not server.alive
        assert server.stop() is None
        server.start()
        assert "1 topic," in server.recovered
        assert server.stop() == 0


def test_metrics_are_served_at_the_address_of_the_setting() -> None:
    """The setting is kcore.http.listen. The first line of the output names the port."""
    command = [sys.executable, "-m", "kcore", "serve", "--listen", "127.0.0.1:0", "-c", "kcore.http.listen=127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            pattern = r"kcore: console at http://127\.0\.0\.1:(\d+)/, metrics at http://\S+/metrics\n"
            printed = re.fullmatch(pattern, server.stdout.readline())
            assert printed is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(printed[1]), timeout=20)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b"ok\n"
            connection.close()
        finally:
            server.kill()
