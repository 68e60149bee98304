"""Damages one data folder at random and checks the result. Runs as a child process, because LMDB may abort the process.

For each seed it prints a JSON line: the damage, and the batches before and after the repair.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import kcore
from kcore.cli import main
from kcore.errors import KcoreError
from kcore.log import LmdbLogEngine
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.batch import iter_records, parse_header, split_batches
from tests.kit import FETCH_VERSION, Target, committed, fetch, start_offset

PAGE = 4096
DAMAGES = ("flip", "zero", "swap", "old", "truncate", "garbage", "journal")


def damage(data: bytes, journal: bytes, seed: int) -> tuple[str, bytes, bytes]:
    """Returns the kind of damage, and the contents of the data file and of the journal after the damage.

    The last entry of the journal stays valid. Otherwise the damage would look like a write that a crash has
    interrupted.
    """
    chance = random.Random(seed)
    kind = DAMAGES[seed % len(DAMAGES)]
    damaged = bytearray(data)
    if kind == "journal":
        entries = bytearray(journal)
        last = journal.rindex(journal[16:32]) - 16
        for _ in range(chance.randrange(1, 4)):
            entries[chance.randrange(last)] ^= 1 << chance.randrange(8)
        return kind, data, bytes(entries)
    pages = len(data) // PAGE
    at, other = chance.randrange(2, pages), chance.randrange(2, pages)
    if kind == "flip":
        for _ in range(chance.randrange(1, 9)):
            damaged[chance.randrange(2 * PAGE, len(data))] ^= 1 << chance.randrange(8)
    elif kind == "zero":
        damaged[at * PAGE : (at + chance.randrange(1, 4)) * PAGE] = bytes(PAGE)
    elif kind == "swap":
        damaged[at * PAGE : (at + 1) * PAGE] = data[other * PAGE : (other + 1) * PAGE]
        damaged[other * PAGE : (other + 1) * PAGE] = data[at * PAGE : (at + 1) * PAGE]
    elif kind == "old":
        damaged[at * PAGE : (at + 1) * PAGE] = struct.pack("=Q", at) + data[other * PAGE + 8 : (other + 1) * PAGE]
    elif kind == "truncate":
        del damaged[chance.randrange(2 * PAGE, len(data)) :]
    else:
        damaged[at * PAGE : (at + 1) * PAGE] = chance.randbytes(PAGE)
    return kind, bytes(damaged), journal


def result_of(*arguments: Any) -> tuple[int, str]:
    """Runs `kcore` with arguments. Returns the exit status and the output."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue()


def batches_of(folder: Path) -> dict[str, dict[int, str]]:
    """Returns every readable batch, by partition and base offset; each is checked by its CRC."""
    engine = LmdbLogEngine(folder, create=False)
    found: dict[str, dict[int, str]] = {}
    try:
        for key in engine.partitions():
            log = engine.get(key)
            assert log is not None
            read = found.setdefault(str(key), {})
            try:
                for base, batch in log.batches():
                    read[base] = batch.hex()
            except KcoreError:
                pass  # the batches before the damage count
    finally:
        engine.close()
    return found


def readable_batches(folder: Path) -> dict[str, dict[int, str]] | str:
    """Returns the batches of a folder, or the error text if the folder cannot be opened."""
    try:
        return batches_of(folder)
    except KcoreError as error:
        return str(error)


def served_values(target: Target, topic: str) -> list[tuple[int, str]]:
    """Returns (offset, value in hex) of every record that a client can fetch. Skips empty batches."""
    found = []
    offset = start_offset(target, topic)
    while True:
        (response,) = target.send(fetch(topic, offset), FETCH_VERSION).responses[0].partitions
        assert response.error_code == ErrorCode.NONE, response
        data = response.records or b""
        batches = split_batches(data).batches
        if not batches:
            return found
        for start, size in batches:
            one = data[start : start + size]
            found += [(record.offset, (record.value or b"").hex()) for record in iter_records(one)]
            offset = parse_header(one).next_offset


def try_damage(folder: Path, source: Path, seed: int, settings: dict[str, str]) -> dict[str, Any]:
    """Damages a folder, reads it with every command, repairs it, and serves from it."""
    folder.mkdir()
    kind, damaged, journal = damage((source / "data.mdb").read_bytes(), (source / "journal").read_bytes(), seed)
    (folder / "data.mdb").write_bytes(damaged)
    (folder / "journal").write_bytes(journal)
    result: dict[str, Any] = {"seed": seed, "damage": kind}
    result["verify"] = result_of("log", "verify", folder)
    result["dump"] = result_of("log", "dump", folder)[0]
    result["before"] = readable_batches(folder)
    result["copy"] = result_of("log", "copy", folder, f"{folder}.copy")[0]
    result["repair"] = result_of("log", "repair", folder, "--yes", "--format", "json")
    if result["repair"][0]:
        return result
    result["verify again"] = result_of("log", "verify", folder)
    result["after"] = readable_batches(folder)
    with kcore.open(folder, config=settings, create=False) as engine:
        result["values"] = served_values(engine, "lines") if engine.engine.topics.by_name("lines") is not None else []
        result["offsets"] = [committed(engine, f"group-{number}") for number in range(5)]
    result["offsets"] = [list(found.values()) for found in result["offsets"]]
    return result


if __name__ == "__main__":
    source, work, settings = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    for number in sys.argv[4:]:
        print(f"seed {number}", file=sys.stderr, flush=True)
        print(json.dumps(try_damage(work / number, source, int(number), settings)), flush=True)
