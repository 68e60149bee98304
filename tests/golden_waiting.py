"""Golden scenarios that need a part that kcore does not have yet, by that part."""

ALL_PARTS = {
    "admin/api_versions_list_what_clients_need",
}

WAITING = ALL_PARTS
