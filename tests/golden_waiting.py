"""Golden scenarios that wait for a part that kcore does not have yet, by the part they wait for."""

ALL_PARTS = {
    "admin/api_versions_list_what_clients_need",
    "admin/list_groups_of_all_types",
}

WAITING = ALL_PARTS
