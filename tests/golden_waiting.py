"""Golden scenarios that need a part that kcore does not have yet, by that part."""

ALL_PARTS = {
    "admin/api_versions_list_what_clients_need",
    "admin/list_groups_of_all_types",
}

SHARE_GROUPS = {"streams/describe_and_other_groups"}

WAITING = ALL_PARTS | SHARE_GROUPS
