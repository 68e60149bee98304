"""Golden scenarios that need a part that kcore does not have yet, by that part."""

QUOTAS: set[str] = {"operators/producers_over_their_quota_are_throttled"}

WAITING = QUOTAS
