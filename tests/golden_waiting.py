"""Golden scenarios that wait for a part that kcore does not have yet, by the part they wait for."""

TRANSACTIONS = {
    "admin/find_coordinator_in_every_version",
    "data/committed_fetch_waits_for_the_marker",
    "data/idempotent_epochs",
    "data/idempotent_sequences",
    "data/requests_in_flight_are_served_in_order",
    "offsets/later_plain_commit_beats_the_transaction",
    "offsets/offsets_of_an_aborted_transaction",
    "offsets/offsets_of_an_open_transaction",
    "offsets/transaction_checks_members",
    "offsets_expiry/open_transactions_protect_the_group",
}
CONSUMER_GROUPS = {
    "admin/group_settings",
    "admin/list_groups_of_all_types",
    "offsets/topic_deletion_in_all_groups",
}
ALL_PARTS = {"admin/api_versions_list_what_clients_need"}
SECURITY = {"admin/security_apis_without_security"}

WAITING = TRANSACTIONS | CONSUMER_GROUPS | ALL_PARTS | SECURITY
