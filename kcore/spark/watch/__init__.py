"""The streaming job: continues the state, the history and the audit of every partition with each micro-batch."""
