"""Golden scenarios that wait for a part that kcore does not have yet, by the part they wait for."""

CONSUMER_GROUPS = {
    "admin/group_settings",
    "admin/list_groups_of_all_types",
}
ALL_PARTS = {"admin/api_versions_list_what_clients_need"}

WAITING = CONSUMER_GROUPS | ALL_PARTS
