"""Cluster metadata: the metadata state machine, its image and records, topics, users."""
