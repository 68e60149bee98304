"""Virtual topics, which are shards without data that consumers share, and the example program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kcore
from kcore.client.virtual_topics import declare_virtual_topic
from kcore.protocol.error_codes import ErrorCode
from tests.kit import batch, produce

ROOT = Path(__file__).parents[2]


def test_a_virtual_topic_grows_and_refuses_data() -> None:
    """A call with more shards extends the topic. A call with fewer or the same number changes nothing. The topic
    refuses records.
    """
    with kcore.open() as engine:
        assert declare_virtual_topic(engine, "shards", 4) == 4
        assert declare_virtual_topic(engine, "shards", 4) == 4
        assert declare_virtual_topic(engine, "shards", 6) == 6
        assert declare_virtual_topic(engine, "shards", 3) == 6
        topic = engine.engine.topics.by_name("shards")
        assert topic is not None
        assert topic.partitions == 6
        response = engine.send(produce("shards", batch([b"data"])), 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_example_prints_the_expected_output() -> None:
    """Workers share all shards after every change. The commit of a frozen worker is refused, and the worker rejoins."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "virtual_topics.py")],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith("    ")]) == 5
    assert lines[-1] == "ann leaves: nothing was lost, nothing was owned twice"
