"""Golden scenarios that wait for a part that kcore does not have yet, by the part they wait for."""

ALL_PARTS = {
    "admin/api_versions_list_what_clients_need",
    "admin/list_groups_of_all_types",
}

SHARE_GROUPS = {"streams/describe_and_other_groups"}

WAITING = ALL_PARTS | SHARE_GROUPS
