"""Jobs on the URL of a cluster, and on an export of the cluster: both give the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.cli import main
from kcore.log.data_folder import DataFolder
from kcore.spark.jobs.audit import audit
from kcore.spark.jobs.rebuild import rebuild
from kcore.spark.state.table_schemas import TABLES
from tests.cluster.world import Client
from tests.processes.world import LocalWorld
from tests.spark.test_uri_jobs import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

GROUPS = 6


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Yields the URL of three nodes, which run while the jobs read their logs."""
    world = LocalWorld(tmp_path / "folder")
    world.start()
    world.shared.lock = DataFolder(world.shared.path)  # locked as by a supervisor
    client = Client(world)
    client.create("t", 3)
    for number in range(GROUPS):
        client.produce("t", number % 3, b"%d" % number)
        client.commit(f"group-{number}", number)
    yield f"local://{world.shared.path}"
    world.close()
    world.shared.close()


def test_jobs_read_a_cluster_and_its_export_alike(spark: Any, url: str, tmp_path: Path) -> None:
    events = str(tmp_path / "events")
    assert main(["export", "--cluster", url, "--out", events]) == 0
    direct, exported = tmp_path / "direct", tmp_path / "exported"
    assert audit(spark, url, direct / "audit") == audit(spark, events, exported / "audit")
    assert rows_of(spark, str(direct / "audit"), "findings") == []
    rebuild(spark, url, direct / "state")
    rebuild(spark, events, exported / "state")
    for name in TABLES:
        assert rows_of(spark, str(direct / "state"), name) == rows_of(spark, str(exported / "state"), name), name
    offsets = spark.read.parquet(str(direct / "state" / "offsets")).collect()
    assert {(row.group_id, row.offset) for row in offsets} == {(f"group-{n}", n) for n in range(GROUPS)}
