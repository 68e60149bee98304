"""The partition moves of one run of sticky's general path, by topic and members."""
