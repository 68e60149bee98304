"""Golden scenarios that need a part that kcore does not have yet, by that part."""

QUOTAS: set[str] = {
    "operators/quotas_are_set_and_removed",
    "operators/quotas_refuse_bad_entities",
    "operators/quotas_refuse_bad_values",
    "operators/quotas_are_found_by_filters",
    "operators/quotas_validated_only",
    "operators/producers_over_their_quota_are_throttled",
}

WAITING = QUOTAS
