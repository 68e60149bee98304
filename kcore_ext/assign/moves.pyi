"""Which partition of a topic moved from whom to whom in one run of sticky's general path."""
