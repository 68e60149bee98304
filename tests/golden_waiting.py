"""Golden scenarios that need a part that kcore does not have yet, by that part."""

ALL_PARTS = {
    "admin/api_versions_list_what_clients_need",
    "admin/list_groups_of_all_types",
}

WAITING = ALL_PARTS
