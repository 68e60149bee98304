"""Java's clients (kafka-clients): a small program produces records, consumes them in a group, and uses the admin
client.

test_new_protocol tests Java's consumers of the new protocol.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.clients.java_programs import command

LIMIT_S = 300.0
"""The time limit of the program. The program starts a virtual machine and waits for two rebalances."""

STEPS = [
    "ok: topic created",
    "ok: records produced in order",
    "ok: two members share the partitions",
    "ok: every record arrived whole",
    "ok: the one who stays takes over",
    "ok: offsets committed",
    "ok: seek by time",
    "ok: group described",
    "ok: a group with members is not deleted",
    "ok: offsets altered",
    "ok: offsets and group deleted",
    "ok: topic administrated",
    "ok: topic deleted",
]
"""Lines that the program KafkaClient writes."""


@pytest.mark.timeout(LIMIT_S + 60)
def test_java_clients_work(bootstrap: str, name: str) -> None:
    program = finished([*command("KafkaClient"), bootstrap, name, name, "1"])
    assert (program.stdout.splitlines(), program.returncode) == (STEPS, 0), program.stderr


def finished(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program until it ends. If it exceeds the time limit, the test fails and lists the completed steps."""
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            output, errors = program.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            output, errors = program.communicate()
            pytest.fail(f"not finished within {LIMIT_S:g} s; its steps:\n{output}\nits errors:\n{errors}")
    return subprocess.CompletedProcess(arguments, program.returncode, output, errors)
