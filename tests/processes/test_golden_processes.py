"""Three processes of `kcore serve --processes` send the same responses and write the same records as Apache Kafka
4.3.1.

The scripts use one server, so the other two nodes are drained. All partitions and coordinators are on the first node.
The metadata log is on the node that is the controller.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kcore.client import Connection
from kcore.cluster.local import LocalClusterStore
from kcore.cluster.store import METADATA
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.kit import wait_until
from tests.processes.supervised import Supervised
from tests.test_golden import AREAS, RETRIES, check, use_up_scripted_ids
from tests.test_virtual_golden import settings_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PROCESSES = 3
DIFFERENT = {
    "wire/unknown_keys_close",  # requests that only Kafka's controllers serve
    "admin/create_topics_refuses_bad_counts",  # three replicas are possible here
    "operators/the_quorum_is_one_voter",  # these list or name the nodes or the controller
    "operators/brokers_and_voters_that_are_not_there",
    "admin/delete_topics_by_id",
    "admin/describe_cluster",
    "admin/metadata_by_topic_id",
    "admin/metadata_of_a_topic_in_every_version",
    "admin/metadata_of_all_topics_and_of_none",
    "admin/metadata_of_unknown_and_illegal_names",
    "admin_edge/metadata_does_not_make_illegal_topics",
    "admin_edge/metadata_makes_unknown_topics",
    "operators_edge/unknown_topics_are_told_first_and_then_found",
    "operators_edge/unknown_topics_that_are_not_made",
}
"""Scenarios that may fail, because their responses depend on the number of nodes."""


def drain_others(data: Path) -> None:
    """Makes node 1 the leader of all partitions."""
    store = LocalClusterStore(str(data), "os")
    try:
        for node_id in range(2, PROCESSES + 1):
            wait_until(lambda node_id=node_id: store.set_draining(node_id, True), f"node {node_id} is known", 60)
        wait_until(lambda: {row.leader for row in store.leaders() if row.key != METADATA} == {1}, "node 1 leads", 60)
    finally:
        store.close()


def use_up_ids(bootstrap: str) -> None:
    """Allocates the producer ids that the scripts use as unknown ids.

    Before that, it waits until the node has received a block of producer ids from the controller.
    """
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    with Connection.to(bootstrap) as client:
        wait_until(lambda: client.send(request, 4).error_code == 0, "the node has producer ids", 60)
    use_up_scripted_ids(bootstrap)


@pytest.mark.parametrize("area", sorted(AREAS))
def test_responses_of_an_area_equal_kafkas(area: str, tmp_path: Path) -> None:
    with Supervised(tmp_path, PROCESSES, settings_of(area)) as cluster:
        drain_others(cluster.data)
        bootstrap = f"127.0.0.1:{cluster.ports[0]}"
        use_up_ids(bootstrap)
        run, passed, failed = check(bootstrap, AREAS[area], 6, area)
        for _ in range(RETRIES):
            if not failed - DIFFERENT:
                break
            run, again, failed = check(bootstrap, AREAS[area], 1, *sorted(failed - DIFFERENT))
            passed |= again
    print(run.stdout)
    assert passed or failed <= DIFFERENT, run.stderr
    assert failed - DIFFERENT == set(), run.stdout
