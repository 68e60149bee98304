"""The Dockerfile of examples/docker.

The machine may have no Docker, so the tests run the commands of its steps. The long test builds as the build stage
does, in a virtual environment, and runs the command and the health check.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kcore.cli import parser_for
from tests.kit import wait_until
from tests.test_packaging import PACKAGES, ROOT, tracked

DOCKERFILE = ROOT / "examples" / "docker" / "Dockerfile"
DATA = "/var/lib/kcore"
IMAGE = "/opt/kcore"


class Instruction(NamedTuple):
    """One instruction of a Dockerfile.

    Attributes:
        stage: number of its stage, from 0; -1 before the first.
        name: its name.
        text: its arguments, in one line.
    """

    stage: int
    name: str
    text: str


def instructions() -> list[Instruction]:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    found = []
    stage = -1
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, text = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, " ".join(text.split())))
    return found


def of(name: str, stage: int) -> list[str]:
    """Returns the arguments of all instructions with this name in a stage."""
    return [instruction.text for instruction in instructions() if instruction[:2] == (stage, name)]


def copied() -> list[tuple[list[str], str]]:
    """Returns the sources and the target of each COPY from the checkout."""
    rows = [text.split() for text in of("COPY", 0)]
    return [(row[:-1], row[-1]) for row in rows]


def sent_to_the_builder() -> set[str]:
    """Returns the files of the checkout that Dockerfile.dockerignore does not exclude."""
    lines = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = tuple(rule[1:] for rule in rules if rule.startswith("!"))
    assert set(rules[len(allowed) + 1 :]) == {"**/__pycache__", "**/*.so", "**/*.c"}, (
        "build results are not sent to the builder"
    )
    return {name for name in tracked() if name.split("/")[0] in allowed}


def test_every_copied_file_is_sent_and_every_sent_file_is_copied() -> None:
    sources = {source for row, _ in copied() for source in row}
    sent = sent_to_the_builder()
    assert {name.split("/")[0] for name in sent} == sources
    assert {name for name in tracked() if name.startswith(PACKAGES)} < sent
    assert all(target in ("./", *sources) for _, target in copied())


def test_the_image_has_no_compiler_and_runs_without_root() -> None:
    assert "gcc" in of("RUN", 0)[0]
    final = [instruction for instruction in instructions() if instruction.stage == 1]
    assert not any("apt-get" in instruction.text or "gcc" in instruction.text for instruction in final)
    names = [instruction.name for instruction in final]
    assert of("USER", 1) == ["10001:10001"]
    assert "useradd --uid 10001 --gid 10001" in of("RUN", 1)[0]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in ("RUN", "COPY"))
    assert of("VOLUME", 1) == [DATA]
    assert f"-o kcore -g kcore {DATA}" in of("RUN", 1)[0]
    assert of("COPY", 1) == [f"--from=build {IMAGE} {IMAGE}"]


def server_command() -> list[str]:
    return json.loads(of("ENTRYPOINT", 1)[0]) + json.loads(of("CMD", 1)[0])


def health_command() -> list[str]:
    return json.loads(of("HEALTHCHECK", 1)[0].split(" CMD ")[1])


def health_arguments() -> str:
    match = re.search(r'KCORE_HEALTH="([^"]*)"', of("ENV", 1)[0])
    assert match is not None
    return match[1]


def test_the_command_and_the_health_check_are_commands_of_kcore() -> None:
    command = server_command()
    assert command[0] == "kcore"
    served = parser_for("serve").parse_args(command[1:])
    assert (served.data, served.listen) == (DATA, ["0.0.0.0:9092"])
    shell, option, health = health_command()
    assert (shell, option) == ("sh", "-c")
    words = shlex.split(health.replace("$KCORE_HEALTH", health_arguments()))
    assert words[-2:] == [">", "/dev/null"]
    checked = parser_for("topics").parse_args(words[1:-2])
    assert checked.bootstrap == "127.0.0.1:9092"
    assert of("EXPOSE", 1) == ["9092"]


def test_the_build_stage_installs_extras_of_the_package() -> None:
    requirement = re.search(r'"\.\[([a-z,]+)\]"', of("RUN", 0)[1])
    assert requirement is not None
    text = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in text for extra in requirement[1].split(","))


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_steps_of_the_build_stage_make_a_server_that_is_healthy(tmp_path: Path) -> None:
    source, image, data = tmp_path / "source", tmp_path / "kcore", tmp_path / "data"
    for name in sent_to_the_builder():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    # The path finds `python` of the version that runs the tests, as the image has one.
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    variables.pop("PYTHONPATH", None)
    build = of("RUN", 0)[1].replace(IMAGE, str(image))
    subprocess.run(["sh", "-ec", build], cwd=source, env=variables, check=True, capture_output=True)
    variables["PATH"] = f"{image}/bin:{variables['PATH']}"
    command = [word.replace(DATA, str(data)).replace("0.0.0.0:9092", "127.0.0.1:0") for word in server_command()]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1].rpartition("//")[2]
            check = {**variables, "KCORE_HEALTH": health_arguments().replace("127.0.0.1:9092", address)}

            def healthy() -> bool:
                return subprocess.run(health_command(), env=check, check=False).returncode == 0

            wait_until(healthy, "the health check passes")
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
            assert not healthy()
        finally:
            server.kill()
    assert (data / "data.mdb").exists()
