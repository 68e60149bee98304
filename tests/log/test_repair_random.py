"""Random damage of a data file: each command ends with an error that names the folder, or with correct data, and never
crashes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kcore
from kcore.protocol.error_codes import ErrorCode
from tests.kit import QUICK, batch, commit, make_topic, produce
from tests.log.damaged_folders import DAMAGES, batches_of

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3", "kcore.durability": "os"}
SEEDS_PER_CHILD = 6
CHILDREN = 7


class Original(NamedTuple):
    """The folder before the damage: its file, its batches, the values of the topic, and the commits of each group."""

    files: Path
    batches: dict[str, dict[str, str]]
    values: dict[int, str]
    commits: list[set[int]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Returns the files in the state that `kill -9` leaves, with a journal that was not moved."""
    root = tmp_path_factory.mktemp("original")
    values: dict[int, str] = {}
    commits: list[set[int]] = [set() for _ in range(5)]
    with kcore.open(root / "running", config={**SETTINGS, "kcore.durability": "fsync"}) as engine:
        make_topic(engine, "lines")
        for number in range(300):
            size = 9_000 if number % 50 == 0 else 40
            value = b"%05d" % number * (size // 5)
            (response,) = engine.send(produce("lines", batch([value])), 9).responses[0].partition_responses
            assert response.error_code == ErrorCode.NONE
            values[response.base_offset] = value.hex()
            engine.send(commit(f"group-{number % 5}", {("lines", 0): number}, metadata="m" * 60), 9)
            commits[number % 5].add(number)
        files = root / "files"
        files.mkdir()
        for name in ("data.mdb", "journal"):
            shutil.copy(root / "running" / name, files)
    whole = root / "whole"
    shutil.copytree(files, whole)
    batches = {key: {str(base): data for base, data in found.items()} for key, found in batches_of(whole).items()}
    return Original(files, batches, values, commits)


@pytest.mark.parametrize(
    "child", [*range(3), *(pytest.param(child, marks=pytest.mark.long) for child in range(3, CHILDREN))]
)
def test_any_damage_gives_an_error_or_correct_data(original: Original, tmp_path: Path, child: int) -> None:
    seeds = range(child * SEEDS_PER_CHILD, (child + 1) * SEEDS_PER_CHILD)
    command = [sys.executable, "-m", "tests.log.damaged_folders", original.files, tmp_path, json.dumps(SETTINGS)]
    ran = subprocess.run(
        [str(word) for word in (*command, *seeds)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(result["seed"], result["damage"]) for result in results] == [
        (seed, DAMAGES[seed % len(DAMAGES)]) for seed in seeds
    ]
    for result in results:
        judge(original, result, tmp_path)


def judge(original: Original, result: dict[str, Any], root: Path) -> None:
    folder = root / str(result["seed"])
    before, after = result["before"], result.get("after")
    if isinstance(before, str):
        assert before.startswith(f"{folder}: "), "the error names the folder"
    else:
        assert is_part(before, original.batches), "all batches that can be read equal the original ones"
    status, output = result["verify"]
    assert status == (0 if output.startswith("no findings in ") else 1), output
    whole = status == 0 and before == original.batches
    repaired, lines = result["repair"]
    if repaired and lines.endswith("nothing of a kcore log can be read\n"):
        return  # only the meta pages were left
    conclusion = json.loads(lines.splitlines()[-1])
    assert (repaired, conclusion["repaired"]) == (0, not whole), lines
    assert not (whole and conclusion["losses"])
    assert result["copy"] == (1 if isinstance(before, str) or status else 0)
    assert result["verify again"][0] == 0, result["verify again"][1]
    assert isinstance(after, dict)
    assert is_part(original_batches_of(after), original.batches)
    if not conclusion["losses"]:  # the journal may have a copy of a damaged batch
        assert after == original.batches
    assert all(original.values[offset] == value for offset, value in result["values"])
    for found, commits in zip(result["offsets"], original.commits, strict=True):
        assert set(found) <= commits


def is_part(found: dict[str, dict[str, str]], whole: dict[str, dict[str, str]]) -> bool:
    """Returns True if every found batch equals the original batch. Ignores the leader epoch, which has no checksum."""
    return all(
        without_epoch(data) == without_epoch(whole[key].get(base, ""))
        for key, batches in found.items()
        for base, data in batches.items()
    )


def without_epoch(data: str) -> str:
    return data[:24] + data[32:]


def original_batches_of(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Returns the batches that the repair did not make.

    The repair makes only empty batches, and batches with timestamp 0 in the metadata log.
    """
    return {
        key: {base: data for base, data in batches.items() if int(data[114:122], 16) and int(data[54:70], 16)}
        for key, batches in found.items()
    }
