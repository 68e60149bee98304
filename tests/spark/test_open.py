"""Error messages for sources that cannot be opened, and for invalid options of the data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import kcore
from kcore.errors import ConfigError, KcoreError
from kcore.spark.events.datasource import KcoreDataSource
from kcore.spark.events.sources import open_source
from kcore.spark.export.exporter import export
from tests import kit


def test_a_folder_of_log_folders_names_them(kafka_logs: Path, tmp_path: Path) -> None:
    """Covers a broker's folder with several logs, and folders that contain exports and data folders."""
    brokers = tmp_path / "several"
    for name in ("disk-1", "disk-2"):
        (brokers / name).mkdir(parents=True)
        (brokers / name / "__transaction_state-0").symlink_to(kafka_logs / "moment-1" / "__transaction_state-0")
    with open_source(brokers / "disk-1") as source:
        export(source, brokers / "events")
    with kcore.open(brokers / "node", config=kit.QUICK):
        pass
    (brokers / "else").mkdir()
    named = ", ".join(str(brokers / name) for name in ("disk-1", "disk-2", "events", "node"))
    with pytest.raises(KcoreError) as refused:
        open_source(brokers)
    assert str(refused.value) == f"{brokers} contains no logs, but its subfolders do: name one of {named}"
    with pytest.raises(KcoreError) as refused:
        open_source(brokers / "else")
    kinds = "an export (manifest.json), nor the segment files of a broker (TOPIC-PARTITION/*.log), nor a data folder"
    assert str(refused.value) == f"{brokers / 'else'} contains no logs: neither {kinds} (data.mdb)"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("startingOffset", "early", "option startingOffset: 'early' is not an integer"),
        ("startingOffset", "-1", "option startingOffset: -1 is less than 0"),
        ("endingOffset", "1.5", "option endingOffset: '1.5' is not an integer"),
        ("startingTimestamp", "2026-01-01", "option startingTimestamp: '2026-01-01' is not an integer"),
        ("endingTimestamp", "", "option endingTimestamp: '' is not an integer"),
        ("partition", "1,x", "option partition: 'x' is not an integer"),
        ("partition", "-3", "option partition: -3 is less than 0"),
        ("topic", "a,,b", "option topic: 'a,,b' contains an empty name"),
        ("rowsPerPartition", "many", "option rowsPerPartition: 'many' is not an integer"),
        ("maxOffsetsPerTrigger", "0", "option maxOffsetsPerTrigger: 0 is less than 1"),
        ("includeBatches", "yes", "option includeBatches: 'yes' is neither true nor false"),
        ("includeFaults", "1", "option includeFaults: '1' is neither true nor false"),
        ("pushFilters", "on", "option pushFilters: 'on' is neither true nor false"),
        ("path", "", "the data source kcore needs the option path"),
    ],
)
def test_invalid_options_are_refused(option: str, value: str, message: str) -> None:
    """Covers options of the reader and of the streaming reader."""
    source: Any = KcoreDataSource({"path": "events", option: value})
    make = source.streamReader if option == "maxOffsetsPerTrigger" else source.reader
    with pytest.raises(ConfigError) as refused:
        make(None)
    assert str(refused.value) == message
