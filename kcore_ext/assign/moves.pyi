"""A record of the partition moves in one run of the sticky assignor for unequal subscriptions."""
