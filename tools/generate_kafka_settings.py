"""Generates kcore/config/kafka_settings.json, the settings of an Apache Kafka broker, from Kafka's own definitions.

Usage: python tools/generate_kafka_settings.py KAFKA_LIBS

KAFKA_LIBS is the folder of the jars of an Apache Kafka release. Java 17 must be installed. The result has one line for
each setting, so that the changes of a new Kafka release are easy to read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE.parent / "kcore" / "config" / "kafka_settings.json"

_RANGE = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or -1)?")
_CHOICES = re.compile(r"(\(case insensitive\) )?\[([A-Za-z0-9_, -]+)\]")


def dumped(libs: Path) -> list[dict[str, Any]]:
    """Runs the Java program that lists the settings."""
    with tempfile.TemporaryDirectory() as folder:
        classes = f"{libs}/*"
        subprocess.run(["javac", "-cp", classes, "-d", folder, str(HERE / "kafka_settings" / "Dump.java")], check=True)
        command = ["java", "-cp", f"{folder}:{classes}", "Dump"]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def row(setting: dict[str, Any]) -> dict[str, Any]:
    """Converts a setting to a row. Leaves out fields with default values."""
    result = {"name": setting["name"], "type": setting["type"], "default": setting["default"]}
    valid = setting["valid"] or ""
    if (bounds := _RANGE.fullmatch(valid)) is not None:
        result["low"] = float(bounds[1]) if "." in bounds[1] else int(bounds[1])
        if bounds[2] is not None:
            result["high"] = float(bounds[2]) if "." in bounds[2] else int(bounds[2])
    elif (choices := _CHOICES.fullmatch(valid)) is not None:
        result["choices"] = choices[2].split(", ")
        if choices[1]:
            result["ignore_case"] = True
    if setting["mode"] != "read-only":
        result["dynamic"] = setting["mode"]
    if setting["listed"]:
        result["position"] = setting["position"]
    else:
        result["listed"] = False
    return result


def main(libs: Path) -> None:
    """Writes the settings of Kafka to the JSON file."""
    lines = [json.dumps(row(setting)) for setting in dumped(libs)]
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{TARGET}: {len(lines)} settings")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
