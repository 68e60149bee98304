"""The least loaded subscriber of a topic, updated as loads change."""
