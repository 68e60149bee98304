"""The sticky assignor for unequal subscriptions (KIP-54, KIP-341)."""
