"""Sticky with equal subscriptions (KAFKA-9987)."""
