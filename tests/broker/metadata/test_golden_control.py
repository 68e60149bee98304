"""The scenarios of area `admin`: the control plane in virtual time responds like Apache Kafka."""

from __future__ import annotations

import pytest

from tests.broker.context import BrokerContext
from tests.broker.metadata.golden_node import differences, scenarios, settings_of

ADMIN = scenarios("admin")
EDGE = scenarios("admin_edge")
NEED_GROUPS = {name for name in ADMIN if name.startswith("find_coordinator")} | {
    "list_groups_of_all_types",
    "group_settings",
    "api_versions_list_what_clients_need",
}
NEED_PRODUCERS = {"partition_admin_errors"}
NEED_SOCKETS = {"frames_up_to_the_limit", "idle_connections_are_closed"}


@pytest.mark.parametrize("name", sorted(ADMIN.keys() - NEED_GROUPS - NEED_PRODUCERS))
def test_responses_to_a_scenario_equal_kafkas(name: str) -> None:
    """Compares whole responses, request by request."""
    node = BrokerContext(settings_of("server.properties"))
    assert differences("admin", name, ADMIN[name], node) == []


@pytest.mark.parametrize("name", sorted(EDGE.keys() - NEED_SOCKETS))
def test_scenario_of_a_server_that_creates_topics(name: str) -> None:
    """Requested topics are created, internal ones with their own number of partitions."""
    node = BrokerContext(settings_of("server-edge.properties"))
    assert differences("admin_edge", name, EDGE[name], node) == []
