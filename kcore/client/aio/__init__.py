"""Asynchronous connections to a Kafka-compatible cluster, and their use from threads."""
