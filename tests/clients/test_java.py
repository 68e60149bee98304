"""Java's clients (kafka-clients): a small program that produces, consumes in a group and uses the admin client.

test_new_protocol tests Java's consumers of the new protocol.
"""

from __future__ import annotations

import subprocess

from tests.clients.java_programs import command


def test_java_clients_work(bootstrap: str, name: str) -> None:
    program = subprocess.run(
        [*command("KafkaClient"), bootstrap, name, name],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (program.stdout.splitlines(), program.returncode) == (
        [
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
            "ok: topic administrated and deleted",
        ],
        0,
    ), program.stderr
