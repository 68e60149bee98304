"""The least loaded subscriber of a topic, kept live while loads change."""
