"""The sticky assignor for equal subscriptions (KAFKA-9987)."""
