"""Sticky with unequal subscriptions (KIP-54, KIP-341)."""
