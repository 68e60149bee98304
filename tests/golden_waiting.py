"""Golden scenarios that need a part that kcore does not have yet, by that part."""

QUOTAS: set[str] = {
    "operators/quotas_are_set_and_removed",
    "operators/quotas_refuse_bad_entities",
    "operators/quotas_refuse_bad_values",
    "operators/quotas_are_found_by_filters",
    "operators/quotas_validated_only",
    "operators/producers_over_their_quota_are_throttled",
}

QUORUM_AND_REPLICAS: set[str] = {
    "operators/the_quorum_is_one_voter",
    "operators/replicas_are_reassigned_to_where_they_are",
    "operators/replicas_stay_in_their_directory",
    "operators/brokers_and_voters_that_are_not_there",
}

LOGGERS: set[str] = {"operators/loggers_are_listed_and_set", "operators/loggers_refuse"}

GROUP_RECORDS: set[str] = {
    "operators_compressed/commits_are_compressed",
    "operators_compressed/group_records_are_compressed",
    "operators_large/assignments_up_to_the_limit",
    "operators_large/commits_of_many_partitions_with_long_metadata",
}

SEGMENTS: set[str] = {
    "operators_segments/retention_by_size_spares_the_active_segment",
    "operators_segments/retention_by_time_needs_a_whole_old_segment",
    "operators_segments/compaction_spares_the_active_segment",
}

WAITING = QUOTAS | QUORUM_AND_REPLICAS | LOGGERS | GROUP_RECORDS | SEGMENTS
