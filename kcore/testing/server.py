"""A kcore server in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from kcore.errors import KcoreError
from kcore.testing.arguments import check_type, setting_texts

STOP_S = 20.0  # time for a clean end
MAX_OUTPUT = 4_000  # maximum characters of the log in the error of a failed start


class ServerProcess:
    """A process of `kcore serve`, which a test can start, kill and start again with the same folder and port.

    Args:
        data: the data folder; None: all data is in memory.
        settings: settings by Kafka's names.
        config_file: a properties file, read before `settings`.
        arguments: further arguments of `kcore serve`.
        stderr: the file to which the server appends its log; None: only the error of a failed start shows the log.

    Attributes:
        port: the TCP port of the first listener. The first start selects a free port, and later starts use the same
            port.
        recovered: text with the numbers of topics, groups and records that the last start recovered.
    """

    def __init__(
        self,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        config_file: Path | None = None,
        arguments: Sequence[str] = (),
        stderr: Path | None = None,
    ) -> None:
        check_type("data", data, str, Path, optional=True)
        check_type("config_file", config_file, str, Path, optional=True)
        check_type("stderr", stderr, str, Path, optional=True)
        self.data = None if data is None else Path(data)
        self.port = 0
        self.recovered = ""
        self._settings = setting_texts(settings)
        if data is None:
            self._settings.setdefault("kcore.durability", "memory")
        else:
            self._settings.setdefault("kcore.reserve.bytes", "0")  # folders of tests need no space on full disks
        self._config_file = config_file
        self._arguments = list(arguments)
        self._stderr = None if stderr is None else Path(stderr)
        self._process: subprocess.Popen[str] | None = None
        self._forgotten: weakref.finalize[..., ServerProcess] | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The HOST:PORT that clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process, or of the last process after its end.

        Raises:
            KcoreError: the server was never started.
        """
        return self._started().pid

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise KcoreError("the server was never started: use `with ServerProcess() as server`, or start()")
        return self._process

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and waits until it listens and has loaded its folder.

        Raises:
            KcoreError: the server runs already, or the process ended (the text contains its output).
        """
        if self.alive:
            raise KcoreError(f"the server runs already, as process {self.pid}")
        command = [sys.executable, "-m", "kcore", "serve", "--listen", f"127.0.0.1:{self.port}", *self._arguments]
        if self.data is not None:
            command += ["--data", str(self.data)]
        if self._config_file is not None:
            command += ["--config", str(self._config_file)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with tempfile.TemporaryFile() if self._stderr is None else self._stderr.open("ab+") as log:
            begin = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            self._forgotten = weakref.finalize(self, _kill, self._process)  # also at the end of the interpreter
            try:
                if self._is_ready(self._process):
                    return
            except BaseException:  # such as KeyboardInterrupt: no process is left behind
                self.kill()
                raise
            status = self._end(signal.SIGKILL)[1]  # it has closed its output, so it is about to end
            log.seek(begin)
            output = log.read().decode(errors="replace").strip()[-MAX_OUTPUT:]
        raise KcoreError(f"kcore serve ended with status {status}: {output or 'no output'}")

    def _is_ready(self, process: subprocess.Popen[str]) -> bool:
        """Reads the output of a started process. Returns False if the output ends before the server is ready."""
        assert process.stdout is not None, "it is a pipe"
        first = True
        for line in process.stdout:
            if "listening on" in line and first:
                first = False
                self.port = int(line.rsplit(":", 1)[1])
            if "recovered" in line:
                self.recovered = line.partition("recovered ")[2].strip()
                return True
        return False

    def kill(self) -> int:
        """Sends SIGKILL; returns the id of the killed process."""
        return self._end(signal.SIGKILL)[0]

    def stop(self) -> int | None:
        """Sends SIGTERM and waits for a clean exit; returns the exit status, or None if the server did not run."""
        return self._end(signal.SIGTERM)[1] if self.alive else None

    def _end(self, number: signal.Signals) -> tuple[int, int]:
        process = self._started()
        process.send_signal(number)
        try:
            status = process.wait(STOP_S)
        except BaseException as error:
            process.kill()
            status = process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        if self._forgotten is not None:
            self._forgotten.detach()
        return process.pid, status


def _kill(process: subprocess.Popen[str]) -> None:
    """Ends the process of a `ServerProcess` that was not stopped."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
